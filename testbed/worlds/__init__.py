"""Worlds: a task and a policy behind the interface of the training loop."""
