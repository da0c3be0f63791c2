"""Ratio surrogates with zero gradient outside a region of the ratio."""
