"""Pairs, and the classical baselines of RLHF."""
