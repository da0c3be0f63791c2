"""Rollouts mixed with demonstrations, replay or best-of-k credit."""
