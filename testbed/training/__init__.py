"""The training loop; a step reads from rollout to weights."""
