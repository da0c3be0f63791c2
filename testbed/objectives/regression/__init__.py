"""Squared residuals between log-ratios and rewards, and mirror descent: the policy fits a tilt of mu or ref.

Where a loss belongs to a whole sequence, its tokens carry equal shares of it: aggregation "constant" with
length 1 then gives the paper's mean over sequences (and, for losses of pairs, the mean over pairs).
"""
