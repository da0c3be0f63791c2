"""Squared errors on log-ratios and mirror descent."""
