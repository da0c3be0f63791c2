"""Numbers about importance weights: ESS by name, KL, quantiles, tail indices, and what peers call them."""
