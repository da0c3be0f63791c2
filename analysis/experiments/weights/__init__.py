"""What ratios, gradients, clips and limits of objectives are, exactly or on bandits and token trees."""
