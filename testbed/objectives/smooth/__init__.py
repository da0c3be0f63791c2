"""Ratio surrogates whose weight fades, brakes or turns instead of being cut."""
