"""Effects of replay, target networks, critics and continuous actions in worlds of known values."""
