"""What a training log says, as tables."""
