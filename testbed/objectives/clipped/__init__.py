"""Ratio surrogates with a region outside which the gradient is zero."""
