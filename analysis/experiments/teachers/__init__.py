"""Effects of teachers: distillation on own and on other samples, injected knowledge, hidden traits."""
