"""Tables about a training log."""
