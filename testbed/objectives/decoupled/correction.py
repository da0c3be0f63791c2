"""Shared parts of objectives with three policies: the mismatch at a level, and the weighted clip."""

import math
from typing import Any

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.clipping import one_sided_clip
from testbed.losses.ratios import log_ratio, log_token


def log_mismatch_at(level: str, batch: Batch) -> Tensor:
    """log of d = anchor/mu at a level (token, sequence, geometric, …), without gradient; [..., B, T]."""
    return log_ratio(level, batch.logp_anchor_BT.detach(), batch)


def between(log_ratio_BT: Tensor, low: float, high: float) -> Tensor:
    """Return where a ratio lies in [low, high], both ends included."""
    ratio_BT = log_ratio_BT.exp()
    return (ratio_BT >= low) & (ratio_BT <= high)


def in_window(_logp_BT: Tensor, batch: Batch, *, level: str, low: float, high: float, **_: Any) -> Tensor:
    """Return where d = anchor/mu at a level lies in [low, high]."""
    return between(log_mismatch_at(level, batch), low, high)


def log_bound(bound: float) -> float:
    """Return the log of a bound of a ratio; -inf for a bound of 0."""
    return math.log(bound) if bound else -math.inf


def whole_sequence(good_BT: Tensor, batch: Batch) -> Tensor:
    """Return True at every token of sequences with only good tokens; [..., B, T]."""
    return (good_BT | ~batch.mask_BT).all(-1, keepdim=True).expand_as(good_BT)


def weighted_clip(
    logp_BT: Tensor,
    batch: Batch,
    *,
    eps_low: float,
    eps_high: float,
    log_h_BT: Tensor | None = None,
    keep_BT: Tensor | None = None,
    c: float = math.inf,
) -> Tensor:
    """Return -h min(u A, clip(u, 1 - eps_low, 1 + eps_high) A), u = pi/anchor; 0 for tokens not kept.

    log_h_BT: log of the detached weight h (default: h = 1). c: dual clip, u <= c for A < 0.
    """
    log_u_BT = log_token(logp_BT, batch, base="anchor")
    zero = torch.zeros_like(log_u_BT)
    # A token without an advantage has weight 0, even where h or u overflows.
    live_BT = batch.mask_BT & (batch.adv_BT != 0)
    live_BT = live_BT if keep_BT is None else live_BT & keep_BT
    weight_BT = zero if log_h_BT is None else torch.where(live_BT, log_h_BT.detach(), zero)
    surrogate_BT = one_sided_clip(
        torch.where(live_BT, log_u_BT, zero), batch.adv_BT, 1 - eps_low, 1 + eps_high, c, weight_BT
    )
    return -torch.where(live_BT, surrogate_BT, zero) * batch.adv_BT
