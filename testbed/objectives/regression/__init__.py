"""Squared residuals between log-ratios and rewards, and mirror descent: the policy fits a tilt of mu or ref.

A loss of a whole sequence is split into equal shares per token: aggregation "constant" with length 1 then
gives the paper's mean over sequences (and, for losses of pairs, the mean over pairs).
"""
