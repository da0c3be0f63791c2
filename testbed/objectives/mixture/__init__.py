"""Losses that depend on the origin or the outcome of a sequence."""
