"""Ratio surrogates with a weight that fades or reverses smoothly instead of being cut."""
