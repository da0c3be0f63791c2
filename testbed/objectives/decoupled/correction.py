"""Objectives with three policies: d = anchor/mu gives a weight or drops a token, u = pi/anchor is clipped.

`decoupled` computes one from two parts, each a function of (logp_BT, batch) and hyperparameters: `weight`
returns the log of h, `keep` the tokens that stay. with_settings.csv names the parts of each objective.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.clipping import one_sided_clip
from testbed.losses.ratios import log_ratio, log_token

Part = Callable[..., Tensor]


def log_mismatch_at(level: str, batch: Batch) -> Tensor:
    """log of d = anchor/mu at a level (token, sequence, geometric, …), without gradient; [..., B, T]."""
    return log_ratio(level, batch.logp_anchor_BT.detach(), batch)


def between(log_ratio_BT: Tensor, low: float, high: float) -> Tensor:
    """Return where a ratio lies in [low, high], both ends included."""
    ratio_BT = log_ratio_BT.exp()
    return (ratio_BT >= low) & (ratio_BT <= high)


def log_bound(bound: float) -> float:
    """Return the log of a bound of a ratio; -inf for a bound of 0."""
    return math.log(bound) if bound else -math.inf


def mismatch(_logp_BT: Tensor, batch: Batch, *, level: str, **_: Any) -> Tensor:
    """Return log d: the weight without a bound."""
    return log_mismatch_at(level, batch)


TOKEN_MISMATCH = partial(mismatch, level="token")


def below_largest_ratio(logp_BT: Tensor, batch: Batch, *, imp_samp_max: float, **_: Any) -> Tensor:
    """Return log min(d, imp_samp_max / u)."""
    log_u_BT = log_token(logp_BT.detach(), batch, base="anchor")
    return torch.minimum(log_mismatch_at("token", batch), math.log(imp_samp_max) - log_u_BT)


def capped(_logp_BT: Tensor, batch: Batch, *, level: str, cap: float, **_: Any) -> Tensor:
    """Return log min(d, cap)."""
    return log_mismatch_at(level, batch).clamp(max=log_bound(cap))


TOKEN_CAPPED = partial(capped, level="token")


def truncated(_logp_BT: Tensor, batch: Batch, *, level: str, low: float, high: float, **_: Any) -> Tensor:
    """Return log clip(d, low, high)."""
    return log_mismatch_at(level, batch).clamp(log_bound(low), log_bound(high))


TOKEN_TRUNCATED = partial(truncated, level="token")


def in_window(_logp_BT: Tensor, batch: Batch, *, level: str, low: float, high: float, **_: Any) -> Tensor:
    """Return where d = anchor/mu at a level lies in [low, high]."""
    return between(log_mismatch_at(level, batch), low, high)


TOKEN_WINDOW = partial(in_window, level="token")
MEAN_WINDOW = partial(in_window, level="geometric")
"""The tokens of sequences whose geometric mean of d = anchor/mu lies in [low, high]."""


def below_cap(_logp_BT: Tensor, batch: Batch, *, level: str, cap: float, **_: Any) -> Tensor:
    """Return where d at a level is at most the cap."""
    return log_mismatch_at(level, batch).exp() <= cap


def whole_sequence(good_BT: Tensor, batch: Batch) -> Tensor:
    """Return True at every token of sequences with only good tokens; [..., B, T]."""
    return (good_BT | ~batch.mask_BT).all(-1, keepdim=True).expand_as(good_BT)


def no_outlier(
    _logp_BT: Tensor, batch: Batch, *, outlier_low: float, outlier_high: float, **_: Any
) -> Tensor:
    """Return the tokens of sequences with every d = anchor/mu inside [outlier_low, outlier_high]."""
    return whole_sequence(between(log_mismatch_at("token", batch), outlier_low, outlier_high), batch)


def no_vanished_token(_logp_BT: Tensor, batch: Batch, *, floor: float, **_: Any) -> Tensor:
    """Return the tokens of sequences in which every d = anchor/mu is at least the floor."""
    return whole_sequence(between(log_mismatch_at("token", batch), floor, math.inf), batch)


def token_window_no_outlier(logp_BT: Tensor, batch: Batch, **hyper: Any) -> Tensor:
    """Return the tokens in the window of sequences without an outlier."""
    return TOKEN_WINDOW(logp_BT, batch, **hyper) & no_outlier(logp_BT, batch, **hyper)


def mean_window_no_outlier(logp_BT: Tensor, batch: Batch, **hyper: Any) -> Tensor:
    """Return the tokens of sequences with a geometric mean in the window and without an outlier."""
    return MEAN_WINDOW(logp_BT, batch, **hyper) & no_outlier(logp_BT, batch, **hyper)


def decoupled(
    logp_BT: Tensor,
    batch: Batch,
    *,
    eps_low: float,
    eps_high: float,
    c: float = math.inf,
    weight: Part | None = None,
    keep: Part | None = None,
    **hyper: Any,
) -> Tensor:
    """Return -h min(u A, clip(u, 1 - eps_low, 1 + eps_high) A), u = pi/anchor; 0 for tokens not kept.

    weight: log of the detached weight h; None for h = 1. keep: the tokens with h > 0; None keeps all. hyper:
    what the two read. c: dual clip, u <= c for A < 0.
    """
    log_u_BT = log_token(logp_BT, batch, base="anchor")
    zero = torch.zeros_like(log_u_BT)
    # A token without an advantage has weight 0, even where h or u overflows.
    live_BT = batch.mask_BT & (batch.adv_BT != 0)
    live_BT = live_BT & keep(logp_BT, batch, **hyper) if keep else live_BT
    weight_BT = torch.where(live_BT, weight(logp_BT, batch, **hyper).detach(), zero) if weight else zero
    log_u_BT, bounds = torch.where(live_BT, log_u_BT, zero), (1 - eps_low, 1 + eps_high)
    surrogate_BT = one_sided_clip(log_u_BT, batch.adv_BT, *bounds, c, weight_BT)
    return -torch.where(live_BT, surrogate_BT, zero) * batch.adv_BT
