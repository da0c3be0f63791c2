"""Inspect an objective through its derivative: effective weights, kept tokens, tables and pages."""
