"""REC: REINFORCE that drops tokens outside a region of the ratio, with or without importance weights."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.errors import unknown
from testbed.losses.ratios import log_ratio
from testbed.losses.score_loss import score_loss

WEIGHTS = ("none", "importance")
ONE_SIDE_LEVELS = ("token", "geometric")


def masked_reinforce(
    logp_BT: Tensor,
    batch: Batch,
    *,
    keep: Callable[..., Tensor],
    weight: str,
    level: str = "token",
    **bounds: float,
) -> Tensor:
    """Return -M h A log pi, h = 1 for weight "none" and the detached ratio for "importance".

    keep: M, by the ratio at a level and its bounds.
    """
    kept_BT = keep(logp_BT, batch, level=level, **bounds)
    if weight not in WEIGHTS:
        raise unknown("weight", weight, WEIGHTS)
    ratio_BT = log_ratio(level, logp_BT, batch).exp()
    chosen_BT = ratio_BT if weight == "importance" else torch.ones_like(ratio_BT)
    return score_loss(torch.where(kept_BT, chosen_BT, torch.zeros_like(chosen_BT)), logp_BT, batch)


def one_side(
    logp_BT: Tensor, batch: Batch, *, eps_low: float, eps_high: float, level: str, **_: Any
) -> Tensor:
    """Return A >= 0 and r <= 1 + eps_high, or A <= 0 and r >= 1 - eps_low; bool [..., B, T]."""
    if level not in ONE_SIDE_LEVELS:
        raise unknown("ratio level", level, ONE_SIDE_LEVELS)
    ratio_BT = log_ratio(level, logp_BT.detach(), batch).exp()
    positive_BT = (batch.adv_BT >= 0) & (ratio_BT <= 1 + eps_high)
    return positive_BT | (batch.adv_BT <= 0) & (ratio_BT >= 1 - eps_low)


def two_side(logp_BT: Tensor, batch: Batch, *, eps_low: float, eps_high: float, **_: Any) -> Tensor:
    """Return 1 - eps_low <= r <= 1 + eps_high, for either sign of A; bool [..., B, T]."""
    ratio_BT = log_ratio("token", logp_BT.detach(), batch).exp()
    return (ratio_BT >= 1 - eps_low) & (ratio_BT <= 1 + eps_high)


def ring(logp_BT: Tensor, batch: Batch, *, far_low: float, far_high: float, **near: Any) -> Tensor:
    """Return two_side, or A >= 0 and r <= 1 - far_low, or A <= 0 and r >= 1 + far_high."""
    ratio_BT = log_ratio("token", logp_BT.detach(), batch).exp()
    inside_BT = two_side(logp_BT, batch, **near)
    fallen_BT = (batch.adv_BT >= 0) & (ratio_BT <= 1 - far_low)
    return inside_BT | fallen_BT | (batch.adv_BT <= 0) & (ratio_BT >= 1 + far_high)
