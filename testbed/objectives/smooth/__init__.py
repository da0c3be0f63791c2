"""Ratio surrogates with a weight that fades, brakes or turns instead of being cut."""
