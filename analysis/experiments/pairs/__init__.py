"""What sets of preferences teach, as they age and as their coverage ends."""
