"""Objectives: pure functions from log-probabilities to per-token losses, one file each.

`objective` registers them with their citation and promises, which contract tests check:

ratio:            the importance ratio it reads (none, token, prefix, min_prefix, sequence, geometric).
detached:         the weight is a constant for autograd; gradcheck does not apply.
max_weight:       name of the hyperparameter (or a number) that bounds |w / A|.
on_policy:        w / A when pi = mu = anchor: 1, or "1/T" when a sequence's weight is spread over tokens.
batch_statistic:  the weight of one token depends on other sequences of the batch.
"""

from __future__ import annotations

from testbed.registry import Registry

objective = Registry("objective", package="testbed.objectives")
