"""KL rejection: drop tokens or sequences by an estimate of the divergence between anchor and sampler."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.errors import unknown
from testbed.objectives.decoupled.correction import log_bound, log_mismatch_at

ESTIMATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "k1": lambda log_d: -log_d,
    "k2": lambda log_d: log_d.square() / 2,
    "k3": lambda log_d: torch.expm1(log_d) - log_d,
}


def divergence(batch: Batch, estimator: str, level: str) -> Tensor:
    """Return the estimate of KL(mu || anchor) from tokens of mu, at a level; [..., B, T].

    level: token, or sequence_sum, sequence_mean, sequence_max over a sequence's tokens.
    """
    if estimator not in ESTIMATORS:
        raise unknown("estimator", estimator, ESTIMATORS)
    # log d, and so the estimate, is 0 outside the mask: padding adds nothing to a sum.
    value_BT = ESTIMATORS[estimator](log_mismatch_at("token", batch))
    length_B1 = batch.mask_BT.sum(-1, keepdim=True)
    lowest_BT = value_BT.masked_fill(~batch.mask_BT, -torch.inf)
    levels = {
        "token": lambda: value_BT,
        "sequence_sum": lambda: value_BT.sum(-1, keepdim=True),
        "sequence_mean": lambda: value_BT.sum(-1, keepdim=True) / length_B1,
        "sequence_max": lambda: lowest_BT.max(-1, keepdim=True).values,
    }
    if level not in levels:
        raise unknown("level", level, levels)
    return levels[level]().expand_as(value_BT)


def within_limit(
    _logp_BT: Tensor, batch: Batch, *, estimator: str, level: str, limit: float, **_: Any
) -> Tensor:
    """Return where the estimate is at most the limit in absolute value; only k1 can be negative."""
    return divergence(batch, estimator, level).abs() <= limit


def within_inverted_bounds(
    _logp_BT: Tensor, batch: Batch, *, level: str, low: float, high: float, **_: Any
) -> Tensor:
    """Return where log low <= -log d <= log high: d in [1/high, 1/low]."""
    k1_BT = divergence(batch, "k1", level)
    return (k1_BT >= log_bound(low)) & (k1_BT <= log_bound(high))
