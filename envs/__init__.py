"""Worlds with known values and gradients. `envs.registration` makes them gymnasium environments."""
