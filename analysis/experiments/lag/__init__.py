"""What old data do to learning: lag, reuse, replay and averaging, on bandits and toy language models."""
