"""Masked importance sampling: weigh by the engine mismatch inside a window; drop it outside."""

import math
from typing import Any

from torch import Tensor

from testbed.data.batch import Batch
from testbed.objectives import objective
from testbed.objectives.decoupled.correction import in_window, log_mismatch_at, weighted_clip
from testbed.objectives.decoupled.tis import no_outlier


@objective(
    "mis",
    source="Liu et al. (2025), yingru.notion.site, 'When Speed Kills Stability'; "
    "huggingface/trl f2cd5771 2026-07-24, trl/trainer/grpo_trainer.py",
    reads=("mu", "anchor", "adv"),
    keep=in_window,
)
def mis(
    logp_BT: Tensor,
    batch: Batch,
    *,
    level: str = "sequence",
    low: float = 0.0,
    high: float = 3.0,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    c: float = math.inf,
) -> Tensor:
    """L = -sg[d 1[low <= d <= high]] min(u A, clip(u, 1 - eps_low, 1 + eps_high) A), u = pi/anchor.

    d = anchor/mu at a level: token, sequence (the product over tokens, one weight for all of them) or
    geometric. Level and bounds are TRL's defaults (mode "sequence_mask"); TRL divides by all tokens. The note
    by Liu et al. could not be read. c: dual clip, u <= c for A < 0; off by default.
    """
    return weighted_clip(
        logp_BT,
        batch,
        eps_low=eps_low,
        eps_high=eps_high,
        log_h_BT=log_mismatch_at(level, batch),
        keep_BT=in_window(logp_BT, batch, level=level, low=low, high=high),
        c=c,
    )


def in_window_without_outlier(
    logp_BT: Tensor,
    batch: Batch,
    *,
    low: float = 0.5,
    high: float = 2.0,
    outlier_low: float = 1e-4,
    outlier_high: float = 100.0,
    **_: Any,
) -> Tensor:
    """Return the tokens with d in [low, high], in sequences without an outlier."""
    sequence_BT = no_outlier(logp_BT, batch, outlier_low=outlier_low, outlier_high=outlier_high)
    return sequence_BT & in_window(logp_BT, batch, level="token", low=low, high=high)


@objective.variant(
    "mis@skyrl",
    source="NovaSky-AI/SkyRL a9564572 2026-08-21, skyrl/backends/skyrl_train/utils/"
    "off_policy_correction_utils.py",
    keep=in_window_without_outlier,
)
def mis_skyrl(
    logp_BT: Tensor,
    batch: Batch,
    *,
    low: float = 0.5,
    high: float = 2.0,
    outlier_low: float = 1e-4,
    outlier_high: float = 100.0,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
) -> Tensor:
    """L = -sg[d 1[low <= d <= high] 1[no outlier in the sequence]] min(u A, clip(u) A), d = anchor/mu.

    SkyRL's token mask with its token weight on: masks tokens, not sequences, and drops every sequence with
    one d outside [outlier_low, outlier_high]. It takes them out of the mask.
    """
    hyper = {"low": low, "high": high, "outlier_low": outlier_low, "outlier_high": outlier_high}
    return weighted_clip(
        logp_BT,
        batch,
        eps_low=eps_low,
        eps_high=eps_high,
        log_h_BT=log_mismatch_at("token", batch),
        keep_BT=in_window_without_outlier(logp_BT, batch, **hyper),
    )
