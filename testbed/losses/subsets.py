"""Counting and weighing the k-element subsets of a group, in log space and float64."""

import torch
from torch import Tensor


def log_binomial(n: Tensor, k: Tensor) -> Tensor:
    """Return log C(n, k), float64; -inf if no such subset exists (k < 0 or k > n)."""
    n, k = torch.broadcast_tensors(n.double(), k.double())
    possible = (k >= 0) & (k <= n)
    n, k = torch.where(possible, n, 0.0), torch.where(possible, k, 0.0)
    log = torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
    return torch.where(possible, log, -torch.inf)


def log_sum_before(log_value: Tensor) -> Tensor:
    """Return log sum exp over all earlier entries of the last axis; -inf for the first."""
    nothing = torch.full_like(log_value[..., :1], -torch.inf)
    return torch.cat([nothing, log_value.logcumsumexp(-1)[..., :-1]], dim=-1)
