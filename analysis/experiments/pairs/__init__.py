"""Learning from preference sets as they age and where they lack coverage."""
