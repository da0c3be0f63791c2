"""Ratios, gradients, clips and limits of objectives, exactly or on bandits and token trees."""
