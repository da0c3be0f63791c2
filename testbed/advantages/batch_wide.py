"""Advantages normalized over the whole batch."""

import torch
from torch import Tensor

from testbed.advantages import advantage
from testbed.advantages.grouped import group_mean, group_std
from testbed.data.groups import are_equal
from testbed.data.signals import Signals


@advantage("batch_std", source="Hu (2025), REINFORCE++, arXiv:2501.03262", scope="batch")
def batch_std(signals: Signals, *, center: bool = False, eps: float = 1e-8) -> Tensor:
    """A = (X - mean of X) / (std of X + eps) over the batch, X = R.

    center: X = R - mean of the group first, REINFORCE++'s baseline form. The std divides by B - 1.
    """
    value_B = group_mean(signals) if center else signals.reward_B
    return _standardized(value_B, torch.ones_like(value_B), eps)


@advantage.variant(
    "batch_std@areal", source="inclusionAI/AReaL 4aef98d8 2026-05-21, adv_norm", needs=("mask_BT",)
)
def batch_std_areal(signals: Signals, *, reward_norm: bool = True, eps: float = 1e-5) -> Tensor:
    """A = (X - mean of X) / (std of X + eps) over the batch's tokens, X = group_std with the same eps.

    Unlike the base every token counts once, so long responses pull mean and std, and rewards are first
    standardized by group (reward_norm). Its recipe called GRPO is therefore not group-relative: a batch of
    mostly short successes shifts the others. Both stds divide by the count minus one, the default of its
    Normalization class.
    """
    value_B = group_std(signals, eps=eps) if reward_norm else signals.reward_B
    length_B = signals.require("mask_BT", "batch_std@areal").sum(-1)
    return _standardized(value_B, length_B.to(value_B.dtype), eps)


def _standardized(value_B: Tensor, count_B: Tensor, eps: float) -> Tensor:
    """Standardize with every value weighted by count_B."""
    total_1 = count_B.sum(-1, keepdim=True)
    centered_B = value_B - (count_B * value_B).sum(-1, keepdim=True) / total_1.clamp(min=1)
    variance_1 = (count_B * centered_B**2).sum(-1, keepdim=True) / (total_1 - 1).clamp(min=1)
    # The std of equal values is rounding, and rounding over rounding is an |A| near 1.
    equal_1 = are_equal(value_B.amax(-1, keepdim=True), value_B.amin(-1, keepdim=True))
    return torch.where(equal_1, 0.0, centered_B / (variance_1.sqrt() + eps)).to(value_B.dtype)
