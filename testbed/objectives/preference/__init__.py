"""Pairs and classical baselines: which of two responses is better, and REINFORCE with a baseline.

A batch has no pairs of its own: they are formed within a group by reward. A group's loss is the mean over
its pairs; its G sequences share G times that, each by the pairs it belongs to, so that the mean over
sequences (aggregation "constant", length 1) is the mean over prompts, and for G = 2 over pairs.
"""
