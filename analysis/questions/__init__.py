"""Questions that users of training stacks ask in public threads, and what the code or a verdict answers."""
