"""Kernels of offline and off-policy RL on worlds with known truth: plain functions, batched over cells.

The first axis of every array is R cells (seeds, settings). A model of a finite MDP is a pair (moves_RSAS,
reward_RSA): probabilities of live successors, which sum to 1 minus the probability that the episode ends, and
mean rewards. `envs.logged_data` makes it: `exact_model`, or `moves_RSAS` and `reward_RSA` of logged counts.
"""
