"""REC: REINFORCE that drops tokens outside a region of the ratio, with or without importance weights."""

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.errors import unknown
from testbed.losses.ratios import log_ratio
from testbed.losses.score_loss import score_loss
from testbed.objectives import objective

SOURCE = "Yao et al. (2025), arXiv:2509.24203; yanxi-chen/Trinity-RFT 9051d637, rec_policy_loss.py"
WEIGHTS = ("none", "importance")
ONE_SIDE_LEVELS = ("token", "geometric")


def masked_reinforce(kept_BT: Tensor, weight: str, level: str, logp_BT: Tensor, batch: Batch) -> Tensor:
    """Return -M h A log pi, h = 1 for weight "none" and the detached ratio for "importance"."""
    if weight not in WEIGHTS:
        raise unknown("weight", weight, WEIGHTS)
    ratio_BT = log_ratio(level, logp_BT, batch).exp()
    chosen_BT = ratio_BT if weight == "importance" else torch.ones_like(ratio_BT)
    return score_loss(torch.where(kept_BT, chosen_BT, torch.zeros_like(chosen_BT)), logp_BT, batch)


def one_side(
    logp_BT: Tensor,
    batch: Batch,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    level: str = "token",
) -> Tensor:
    """Return A >= 0 and r <= 1 + eps_high, or A <= 0 and r >= 1 - eps_low; bool [..., B, T]."""
    if level not in ONE_SIDE_LEVELS:
        raise unknown("ratio level", level, ONE_SIDE_LEVELS)
    ratio_BT = log_ratio(level, logp_BT.detach(), batch).exp()
    positive_BT = (batch.adv_BT >= 0) & (ratio_BT <= 1 + eps_high)
    return positive_BT | (batch.adv_BT <= 0) & (ratio_BT >= 1 - eps_low)


def two_side(logp_BT: Tensor, batch: Batch, *, eps_low: float = 0.2, eps_high: float = 0.2) -> Tensor:
    """Return 1 - eps_low <= r <= 1 + eps_high, for either sign of A; bool [..., B, T]."""
    ratio_BT = log_ratio("token", logp_BT.detach(), batch).exp()
    return (ratio_BT >= 1 - eps_low) & (ratio_BT <= 1 + eps_high)


def ring(
    logp_BT: Tensor,
    batch: Batch,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    far_low: float = 0.6,
    far_high: float = 2.0,
) -> Tensor:
    """Return two_side, or A >= 0 and r <= 1 - far_low, or A <= 0 and r >= 1 + far_high."""
    ratio_BT = log_ratio("token", logp_BT.detach(), batch).exp()
    inside_BT = two_side(logp_BT, batch, eps_low=eps_low, eps_high=eps_high)
    fallen_BT = (batch.adv_BT >= 0) & (ratio_BT <= 1 - far_low)
    return inside_BT | fallen_BT | (batch.adv_BT <= 0) & (ratio_BT >= 1 + far_high)


@objective("rec_oneside", source=SOURCE, reads=("mu", "adv"), detached=True, max_weight=1, keep=one_side)
def rec_oneside(
    logp_BT: Tensor,
    batch: Batch,
    *,
    weight: str = "none",
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    level: str = "token",
) -> Tensor:
    """L = -M h A log pi, M = 1 for A >= 0 and r <= 1 + eps_high, or A <= 0 and r >= 1 - eps_low; r = pi/mu.

    weight "none" (h = 1, the paper's NoIS and the default) or "importance" (h = sg[r], PPO's gradient). level
    "geometric" uses the length-normalized ratio for r (REC-GSPO: eps 3e-4 and 4e-4, sequence_mean). A = R -
    group mean, aggregated with token_mean. Where nothing is dropped, its forward-KL regularizer (-tau log pi)
    makes it asymre with shift -tau.
    """
    kept_BT = one_side(logp_BT, batch, eps_low=eps_low, eps_high=eps_high, level=level)
    return masked_reinforce(kept_BT, weight, level, logp_BT, batch)


@objective("rec_twoside", source=SOURCE, reads=("mu", "adv"), detached=True, max_weight=1, keep=two_side)
def rec_twoside(
    logp_BT: Tensor, batch: Batch, *, weight: str = "none", eps_low: float = 0.2, eps_high: float = 0.2
) -> Tensor:
    """L = -M h A log pi, M = 1 for 1 - eps_low <= r <= 1 + eps_high; r = pi/mu of the token.

    Also drops tokens that have moved against their advantage, which PPO would pull back. weight "none" (h =
    1, the default) or "importance" (h = sg[r]). Aggregate with token_mean.
    """
    kept_BT = two_side(logp_BT, batch, eps_low=eps_low, eps_high=eps_high)
    return masked_reinforce(kept_BT, weight, "token", logp_BT, batch)


@objective("rec_ring", source=SOURCE, reads=("mu", "adv"), detached=True, max_weight=1, keep=ring)
def rec_ring(
    logp_BT: Tensor,
    batch: Batch,
    *,
    weight: str = "none",
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    far_low: float = 0.6,
    far_high: float = 2.0,
) -> Tensor:
    """L = -M h A log pi, M = rec_twoside's, or A >= 0 and r <= 1 - far_low, or A <= 0 and r >= 1 + far_high.

    Readmits tokens that moved far against their advantage and must return; between the bands nothing is
    learned. far_low 0.6 and far_high 2 are the registered defaults of the authors' code; its constructor says
    0.4. weight "none" (h = 1, the default) or "importance" (h = sg[r]). Aggregate with token_mean.
    """
    kept_BT = ring(logp_BT, batch, eps_low=eps_low, eps_high=eps_high, far_low=far_low, far_high=far_high)
    return masked_reinforce(kept_BT, weight, "token", logp_BT, batch)
