"""The same measurements of every objective."""
