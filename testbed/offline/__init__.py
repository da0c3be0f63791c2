"""Kernels of offline and off-policy RL on worlds with known truth: plain functions, batched over cells.

R cells (seeds, settings) come first in every array. A model of a finite MDP is a pair (moves_RSAS,
reward_RSA): probabilities of live successors, so that what is missing to 1 ends the episode, and mean
rewards. It comes from `envs.offline`: `exact_model`, or the `moves_RSAS` and `reward_RSA` of logged counts.
"""
