"""What replay, target networks, critics and continuous actions do, in worlds whose values are known."""
