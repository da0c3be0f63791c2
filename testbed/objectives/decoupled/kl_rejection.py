"""KL rejection: drop tokens or sequences by an estimate of the divergence between anchor and sampler."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.errors import unknown
from testbed.objectives.decoupled.correction import decoupled, log_bound, log_mismatch_at

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
    _logp_BT: Tensor,
    batch: Batch,
    *,
    estimator: str = "k3",
    level: str = "token",
    limit: float = 0.01,
    **_: Any,
) -> Tensor:
    """Return where the estimate is at most the limit in absolute value; only k1 can be negative."""
    return divergence(batch, estimator, level).abs() <= limit


@decoupled(
    "kl_rejection",
    source="verl-project/verl 1dda039b 2026-08-22, verl/trainer/ppo/rollout_corr_helper.py; "
    "estimators: Schulman (2020), joschu.net/blog/kl-approx.html",
    keep=within_limit,
    defaults={"c": math.inf},
)
def kl_rejection() -> None:
    """L = -1[|k| <= limit] min(u A, clip(u, 1 - eps_low, 1 + eps_high) A), u = pi/anchor, d = anchor/mu.

    k1 = -log d, k2 = (log d)^2 / 2, k3 = d - 1 - log d; level token, sequence_sum, _mean or _max. Rejection
    only, without a weight. verl's documentation names 0.001 to 0.01 for k3. c: dual clip, u <= c for A < 0;
    off by default.
    """


def within_inverted_bounds(
    _logp_BT: Tensor, batch: Batch, *, level: str = "token", low: float = 0.6, high: float = 1.4, **_: Any
) -> Tensor:
    """Return where log low <= -log d <= log high: d in [1/high, 1/low]."""
    k1_BT = divergence(batch, "k1", level)
    return (k1_BT >= log_bound(low)) & (k1_BT <= log_bound(high))


@decoupled(
    "kl_rejection@verl",
    source="verl-project/verl 1dda039b 2026-08-22, verl/trainer/ppo/rollout_corr_helper.py (token_k1)",
    keep=within_inverted_bounds,
    defaults={"c": 3.0},
    max_weight="max(c, 1 + eps_high)",
)
def kl_rejection_verl() -> None:
    """L = -1[log low <= -log d <= log high] dual_clip(u, A), d = anchor/mu, u = pi/anchor.

    The documentation calls them bounds of the ratio d, but the code compares k1 = -log d: "0.6_1.4" keeps d
    in [0.714, 1.667]. Both agree only when low = 1/high. Adds PPO's dual clip; low and high are an example,
    the option has no default. verl takes dropped tokens out of the mask.
    """
