"""Worlds with known truth: values, gradients. `envs.registration` makes them gymnasium environments."""
