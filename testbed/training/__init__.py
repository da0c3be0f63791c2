"""The one training loop, a step of which reads from rollout to weights."""
