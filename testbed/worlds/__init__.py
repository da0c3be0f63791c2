"""Worlds: a task and a policy, as the one loop sees them."""
