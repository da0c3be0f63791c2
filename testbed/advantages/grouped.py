"""Advantages relative to the group of responses to the same prompt.

A group of one has no peers: group_mean and group_std give 0 there, leave_one_out uses baseline 0.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from testbed.advantages import advantage


def group_sum(value_B: Tensor, group_B: Tensor) -> Tensor:
    """Return for every sequence the sum over its group; [..., B]."""
    totals = torch.zeros_like(value_B).scatter_add_(-1, group_B, value_B)
    return totals.gather(-1, group_B)


@advantage("group_mean", source="Liu et al. (2025), Dr. GRPO, arXiv:2503.20783")
def group_mean(reward_B: Tensor, group_B: Tensor) -> Tensor:
    """A = R - mean of the group."""
    size_B = group_sum(torch.ones_like(reward_B), group_B)
    return reward_B - group_sum(reward_B, group_B) / size_B


@advantage("group_std", source="Shao et al. (2024), GRPO, arXiv:2402.03300, Section 4.1.2")
def group_std(
    reward_B: Tensor,
    group_B: Tensor,
    *,
    std: Literal["unbiased", "population"] = "unbiased",
    eps: float = 1e-6,
) -> Tensor:
    """A = (R - mean) / (std + eps) within the group.

    std: "unbiased" divides by G - 1 (verl, Trinity-RFT), "population" by G (VCPO's code).
    """
    size_B = group_sum(torch.ones_like(reward_B), group_B)
    centered_B = group_mean(reward_B, group_B)
    freedom_B = (size_B - (1 if std == "unbiased" else 0)).clamp(min=1)
    return centered_B / ((group_sum(centered_B**2, group_B) / freedom_B).sqrt() + eps)


@advantage("leave_one_out", source="Ahmadian et al. (2024), RLOO, arXiv:2402.14740, Eq. 6")
def leave_one_out(reward_B: Tensor, group_B: Tensor) -> Tensor:
    """A = R - mean of the others in the group = G/(G-1) (R - mean)."""
    others_B = (group_sum(torch.ones_like(reward_B), group_B) - 1).clamp(min=1)
    return reward_B - (group_sum(reward_B, group_B) - reward_B) / others_B
