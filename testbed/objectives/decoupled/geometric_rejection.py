"""Geometric rejection: drop sequences with too large a mean log-mismatch."""

from functools import partial
from typing import Any

from torch import Tensor

from testbed.data.batch import Batch
from testbed.objectives import objective
from testbed.objectives.decoupled.correction import in_window, weighted_clip
from testbed.objectives.decoupled.tis import no_outlier

MEAN_WINDOW = partial(in_window, level="geometric")
"""The tokens of sequences whose geometric mean of d = anchor/mu lies in [low, high]."""


@objective(
    "geometric_rejection",
    source="Liu et al. (2025), yingru.notion.site, 'When Speed Kills Stability'; "
    "verl-project/verl 1dda039b 2026-08-22, docs/algo/rollout_corr.md",
    reads=("mu", "anchor", "adv"),
    keep=MEAN_WINDOW,
)
def geometric_rejection(
    logp_BT: Tensor,
    batch: Batch,
    *,
    low: float = 0.999,
    high: float = 1.001,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
) -> Tensor:
    """L = -1[low <= (prod_t d_t)^(1/T) <= high] min(u A, clip(u, 1 - eps_low, 1 + eps_high) A).

    d = anchor/mu, u = pi/anchor. Rejection only, without a weight. A mean does not grow with length, so long
    sequences are not dropped for their length. The bounds are those of verl's documentation. verl takes
    dropped sequences out of the mask (kept_mask); the note by Liu et al. could not be read.
    """
    keep_BT = MEAN_WINDOW(logp_BT, batch, low=low, high=high)
    return weighted_clip(logp_BT, batch, eps_low=eps_low, eps_high=eps_high, keep_BT=keep_BT)


def skyrl_window(
    logp_BT: Tensor,
    batch: Batch,
    *,
    low: float = 0.99,
    high: float = 1.01,
    outlier_low: float = 1e-4,
    outlier_high: float = 100.0,
    **_: Any,
) -> Tensor:
    """Return the tokens of sequences with a geometric mean in [low, high] and no outlier."""
    clean_BT = no_outlier(logp_BT, batch, outlier_low=outlier_low, outlier_high=outlier_high)
    return clean_BT & MEAN_WINDOW(logp_BT, batch, low=low, high=high)


@objective.variant(
    "geometric_rejection@skyrl",
    source="NovaSky-AI/SkyRL a9564572 2026-08-21, skyrl/backends/skyrl_train/utils/"
    "off_policy_correction_utils.py",
    keep=skyrl_window,
)
def geometric_rejection_skyrl(
    logp_BT: Tensor,
    batch: Batch,
    *,
    low: float = 0.99,
    high: float = 1.01,
    outlier_low: float = 1e-4,
    outlier_high: float = 100.0,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
) -> Tensor:
    """L = -1[low <= (prod_t d_t)^(1/T) <= high] 1[no outlier] min(u A, clip(u) A), d = anchor/mu.

    A window ten times wider than verl's; sequences with one d outside the outlier bounds are dropped too.
    """
    hyper = {"low": low, "high": high, "outlier_low": outlier_low, "outlier_high": outlier_high}
    keep_BT = skyrl_window(logp_BT, batch, **hyper)
    return weighted_clip(logp_BT, batch, eps_low=eps_low, eps_high=eps_high, keep_BT=keep_BT)
