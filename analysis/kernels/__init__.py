"""Numerical kernels that only experiments use: policy steps, drafts, constraints, logged bandits, rewards."""
