"""Worlds that know their own truth; `envs.registration` makes them gymnasium environments."""
