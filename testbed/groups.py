"""Sums, means and extremes over the sequences that answer the same prompt; all take and give [..., B]."""

from __future__ import annotations

import torch
from torch import Tensor


def group_sum(value_B: Tensor, group_B: Tensor) -> Tensor:
    """Return for every sequence the sum over its group."""
    totals = torch.zeros_like(value_B).scatter_add(-1, group_B, value_B)
    return totals.gather(-1, group_B)


def group_size(value_B: Tensor, group_B: Tensor) -> Tensor:
    """Return for every sequence how many its group has, in the dtype of value_B."""
    return group_sum(torch.ones_like(value_B), group_B)


def group_average(value_B: Tensor, group_B: Tensor) -> Tensor:
    """Return for every sequence the mean over its group."""
    return group_sum(value_B, group_B) / group_size(value_B, group_B)


def group_max(value_B: Tensor, group_B: Tensor) -> Tensor:
    """Return for every sequence the largest value of its group."""
    lowest = torch.full_like(value_B, -torch.inf)
    return lowest.scatter_reduce(-1, group_B, value_B, "amax").gather(-1, group_B)


def group_logmeanexp(value_B: Tensor, group_B: Tensor, temperature: float) -> Tensor:
    """Return temperature * log of the group's mean of exp(value / temperature).

    temperature 0 gives its limit, the largest value; infinity the mean. Never overflows.
    """
    top_B = group_max(value_B, group_B)
    if temperature == 0:
        return top_B
    if temperature == float("inf"):
        return group_average(value_B, group_B)
    mean_B = group_average(((value_B - top_B) / temperature).exp(), group_B)
    return top_B + temperature * mean_B.log()
