"""Pairs and classical baselines: pairwise preference losses, and REINFORCE with a baseline.

Pairs are formed within a group by reward. A group's loss is the mean over its pairs. Its G sequences share G
times that, each by its pairs, so the mean over sequences (aggregation "constant", length 1) is the mean over
prompts, and for G = 2 over pairs.
"""
