"""Read an objective off its derivative: effective weights, kept tokens, tables and pages."""
