"""The one training loop; a step reads from rollout to weights."""
