"""Read, make and summarize the committed tables."""
