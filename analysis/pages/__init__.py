"""Pages that are written from data."""
