"""Geometric rejection: drop sequences with too large a mean log-mismatch."""

from testbed.objectives.decoupled.correction import MEAN_WINDOW, both, decoupled, no_outlier


@decoupled(
    "geometric_rejection",
    source="Liu et al. (2025), yingru.notion.site, 'When Speed Kills Stability'; "
    "verl-project/verl 1dda039b 2026-08-22, docs/algo/rollout_corr.md",
    keep=MEAN_WINDOW,
    defaults={"low": 0.999, "high": 1.001},
)
def geometric_rejection() -> None:
    """L = -1[low <= (prod_t d_t)^(1/T) <= high] min(u A, clip(u, 1 - eps_low, 1 + eps_high) A).

    d = anchor/mu, u = pi/anchor. Rejection only, without a weight. A mean does not grow with length, so long
    sequences are not dropped for their length. The bounds are those of verl's documentation. verl takes
    dropped sequences out of the mask (kept_mask); the note by Liu et al. could not be read.
    """


@decoupled(
    "geometric_rejection@skyrl",
    source="NovaSky-AI/SkyRL a9564572 2026-08-21, skyrl/backends/skyrl_train/utils/"
    "off_policy_correction_utils.py",
    keep=both(MEAN_WINDOW, no_outlier),
    defaults={"low": 0.99, "high": 1.01},
)
def geometric_rejection_skyrl() -> None:
    """L = -1[low <= (prod_t d_t)^(1/T) <= high] 1[no outlier] min(u A, clip(u) A), d = anchor/mu.

    A window ten times wider than verl's; sequences with one d outside the outlier bounds are dropped too.
    """
