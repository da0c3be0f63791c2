"""Rewards reshaped before comparison, so that a perfect expert does not dwarf the attempts."""

from dataclasses import replace

import torch
from torch import Tensor

from testbed.advantages import advantage
from testbed.advantages.grouped import group_std
from testbed.data.signals import Signals
from testbed.errors import UserError


@advantage(
    "shaped_std",
    source="TempSamp-R1 (2025), arXiv:2509.18056, asymmetric shaping; form from secondary sources",
    scope="group",
)
def shaped_std(
    signals: Signals, *, knee: float = 0.8, above: float = 0.01, below: float = 1.0, eps: float = 1e-6
) -> Tensor:
    """A = group_std of f(R) = k + above log(1 + R - k) over the knee k, else k + 1 - e^(below (k - R)).

    Rewards near the best possible are compressed, lower ones spread. f is strictly increasing, so with two
    different rewards in a group A is group_std's. Raises UserError if f does not rise.
    """
    if not (above > 0 and below > 0):
        raise UserError(f"above is {above:g} and below {below:g}; expected positive numbers.")
    over_B = signals.reward_B - knee
    high_B, low_B = above * over_B.clamp(min=0).log1p(), -torch.expm1(below * (-over_B).clamp(min=0))
    bent_B = knee + torch.where(over_B > 0, high_B, low_B)
    return group_std(replace(signals, reward_B=bent_B), eps=eps)
