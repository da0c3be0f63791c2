"""Data passed between the parts of a step: rollouts, advantage inputs, batches, chosen groups."""
