"""How old data affect learning: lag, reuse, replay and averaging, on bandits and toy language models."""
