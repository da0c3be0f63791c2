"""Advantages relative to the group of responses to the same prompt.

A group of one has no peers: group_mean and group_std give 0 there, leave_one_out uses baseline 0.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from testbed.advantages import advantage
from testbed.groups import group_average, group_size, group_sum
from testbed.signals import Signals


@advantage("group_mean", source="Liu et al. (2025), Dr. GRPO, arXiv:2503.20783")
def group_mean(signals: Signals) -> Tensor:
    """A = R - mean of the group."""
    return signals.reward_B - group_average(signals.reward_B, signals.group_B)


@advantage("group_std", source="Shao et al. (2024), GRPO, arXiv:2402.03300, Section 4.1.2")
def group_std(
    signals: Signals,
    *,
    std: Literal["unbiased", "population"] = "unbiased",
    eps: float = 1e-6,
) -> Tensor:
    """A = (R - mean) / (std + eps) within the group.

    std: "unbiased" divides by G - 1 (verl, Trinity-RFT), "population" by G (VCPO's code).
    """
    size_B = group_size(signals.reward_B, signals.group_B)
    centered_B = group_mean(signals)
    freedom_B = (size_B - (1 if std == "unbiased" else 0)).clamp(min=1)
    return centered_B / ((group_sum(centered_B**2, signals.group_B) / freedom_B).sqrt() + eps)


@advantage("leave_one_out", source="Ahmadian et al. (2024), RLOO, arXiv:2402.14740, Eq. 6")
def leave_one_out(signals: Signals) -> Tensor:
    """A = R - mean of the others in the group = G/(G-1) (R - mean)."""
    others_B = (group_size(signals.reward_B, signals.group_B) - 1).clamp(min=1)
    total_B = group_sum(signals.reward_B, signals.group_B)
    return signals.reward_B - (total_B - signals.reward_B) / others_B
