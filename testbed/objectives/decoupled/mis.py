"""Masked importance sampling: weigh by the engine mismatch inside a window; drop it outside."""

import math
from functools import partial

from testbed.objectives.decoupled.correction import (
    TOKEN_MISMATCH,
    both,
    decoupled,
    in_window,
    mismatch,
    no_outlier,
)


@decoupled(
    "mis",
    source="Liu et al. (2025), yingru.notion.site, 'When Speed Kills Stability'; "
    "huggingface/trl f2cd5771 2026-07-24, trl/trainer/grpo_trainer.py",
    weight=mismatch,
    keep=in_window,
    defaults={"level": "sequence", "low": 0.0, "high": 3.0, "c": math.inf},
)
def mis() -> None:
    """L = -sg[d 1[low <= d <= high]] min(u A, clip(u, 1 - eps_low, 1 + eps_high) A), u = pi/anchor.

    d = anchor/mu at a level: token, sequence (the product over tokens, one weight for all of them) or
    geometric. Level and bounds are TRL's defaults (mode "sequence_mask"); TRL divides by all tokens. The note
    by Liu et al. could not be read. c: dual clip, u <= c for A < 0; off by default.
    """


@decoupled(
    "mis@skyrl",
    source="NovaSky-AI/SkyRL a9564572 2026-08-21, skyrl/backends/skyrl_train/utils/"
    "off_policy_correction_utils.py",
    weight=TOKEN_MISMATCH,
    keep=both(partial(in_window, level="token"), no_outlier),
    defaults={"low": 0.5, "high": 2.0},
)
def mis_skyrl() -> None:
    """L = -sg[d 1[low <= d <= high] 1[no outlier in the sequence]] min(u A, clip(u) A), d = anchor/mu.

    SkyRL's token mask with its token weight on: masks tokens, not sequences, and drops every sequence with
    one d outside [outlier_low, outlier_high]. It takes them out of the mask.
    """
