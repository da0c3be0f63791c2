"""The bricks of an objective: ratios, clips, score losses, batch statistics, and the mean over tokens."""
