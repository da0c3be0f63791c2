"""What an objective does, read off its derivative: effective weights, kept tokens, tables and pages."""
