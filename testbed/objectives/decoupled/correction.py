"""Objectives with three policies: d = anchor/mu gives a weight or drops a token, u = pi/anchor is clipped.

`decoupled` makes one from two parts, each a function of (logp_BT, batch) and hyperparameters: `weight`
returns the log of h, `keep` the tokens that stay.
"""

import inspect
import math
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.clipping import one_sided_clip
from testbed.losses.ratios import log_ratio, log_token
from testbed.objectives import objective
from testbed.registry import hyperparameters

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


def mismatch(_logp_BT: Tensor, batch: Batch, *, level: str = "token", **_: Any) -> Tensor:
    """Return log d: the weight without a bound."""
    return log_mismatch_at(level, batch)


TOKEN_MISMATCH = partial(mismatch, level="token")


def capped(_logp_BT: Tensor, batch: Batch, *, level: str = "token", cap: float = 2.0, **_: Any) -> Tensor:
    """Return log min(d, cap)."""
    return log_mismatch_at(level, batch).clamp(max=log_bound(cap))


def truncated(
    _logp_BT: Tensor, batch: Batch, *, level: str = "token", low: float, high: float, **_: Any
) -> Tensor:
    """Return log clip(d, low, high)."""
    return log_mismatch_at(level, batch).clamp(log_bound(low), log_bound(high))


def in_window(_logp_BT: Tensor, batch: Batch, *, level: str, low: float, high: float, **_: Any) -> Tensor:
    """Return where d = anchor/mu at a level lies in [low, high]."""
    return between(log_mismatch_at(level, batch), low, high)


MEAN_WINDOW = partial(in_window, level="geometric")
"""The tokens of sequences whose geometric mean of d = anchor/mu lies in [low, high]."""


def whole_sequence(good_BT: Tensor, batch: Batch) -> Tensor:
    """Return True at every token of sequences with only good tokens; [..., B, T]."""
    return (good_BT | ~batch.mask_BT).all(-1, keepdim=True).expand_as(good_BT)


def no_outlier(
    _logp_BT: Tensor, batch: Batch, *, outlier_low: float = 1e-4, outlier_high: float = 100.0, **_: Any
) -> Tensor:
    """Return the tokens of sequences with every d = anchor/mu inside [outlier_low, outlier_high]."""
    return whole_sequence(between(log_mismatch_at("token", batch), outlier_low, outlier_high), batch)


def no_vanished_token(_logp_BT: Tensor, batch: Batch, *, floor: float = 1e-4, **_: Any) -> Tensor:
    """Return the tokens of sequences in which every d = anchor/mu is at least the floor."""
    return whole_sequence(between(log_mismatch_at("token", batch), floor, math.inf), batch)


def both(*keeps: Part) -> Part:
    """Return the tokens that every part keeps."""

    def keep(logp_BT: Tensor, batch: Batch, **hyper: Any) -> Tensor:
        return torch.stack([part(logp_BT, batch, **hyper) for part in keeps]).all(0)

    keep.__signature__ = inspect.Signature(hyperparameters(*keeps))  # type: ignore[attr-defined]
    return keep


def decoupled(
    name: str, *, source: str, weight: Part | None = None, keep: Part | None = None,
    defaults: dict[str, Any] | None = None, **promises: Any,
) -> Callable[[Callable[[], None]], Part]:  # fmt: skip
    """Register L = -h min(u A, clip(u, 1 - eps_low, 1 + eps_high) A) under a described name.

    Args:
        name: of the objective, or name@source of a variant.
        source: its citation.
        weight: log of the detached weight h; None for h = 1.
        keep: the tokens with h > 0; None keeps all.
        defaults: values of hyperparameters, in place of the parts' own; a "c" adds the dual clip, u <= c for
            A < 0.
        promises: beyond that it reads mu, anchor and adv.
    """
    clip = {"eps_low": 0.2, "eps_high": 0.2}
    given = {**clip, **(defaults or {})}
    hyper = [
        p.replace(default=given[p.name]) if p.name in given else p
        for p in hyperparameters(weight, keep, **{n: given[n] for n in (*clip, "c") if n in given})
    ]
    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    inputs = [inspect.Parameter(given, positional) for given in ("logp_BT", "batch")]
    signature = inspect.Signature([*inputs, *hyper])

    def made(described: Callable[[], None]) -> Part:
        @wraps(described)
        def loss(logp_BT: Tensor, batch: Batch, **chosen: Any) -> Tensor:
            bound = signature.bind(logp_BT, batch, **chosen)
            bound.apply_defaults()
            known = bound.kwargs
            return weighted_clip(
                logp_BT, batch, eps_low=known["eps_low"], eps_high=known["eps_high"],
                log_h_BT=weight and weight(logp_BT, batch, **known),
                keep_BT=keep and keep(logp_BT, batch, **known), c=known.get("c", math.inf),
            )  # fmt: skip

        loss.__signature__ = signature  # type: ignore[attr-defined]
        if keep is not None:
            promises["keep"] = keep
        if "@" in name:
            return objective.variant(name, source=source, **promises)(loss)
        return objective(name, source=source, reads=("mu", "anchor", "adv"), **promises)(loss)

    return made


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
