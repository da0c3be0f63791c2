"""Metrics of importance weights: ESS, KL, quantiles, tail indices, and their names in other stacks."""
