"""Building blocks of objectives: ratios, clips, score losses, batch statistics, and means over tokens."""
