"""TOPR: positives keep weight 1; negatives taper off as the policy leaves them."""

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.ratios import log_ratio, log_token
from testbed.losses.score_loss import score_loss
from testbed.objectives import objective


@objective(
    "topr", source="Le Roux et al. (2025), arXiv:2503.14286, Eq. 6", ratio="sequence", reads=("mu", "adv"),
    scope="sequence", detached=True, max_weight="max(1, high)",
)  # fmt: skip
def topr(logp_BT: Tensor, batch: Batch, *, low: float = 0.0, high: float = 1.0) -> Tensor:
    """L = -A log pi for A > 0, and -sg[clip(W, low, high)] A log pi for A <= 0, W the sequence ratio.

    The paper's signal is R in {-1, +1} without a baseline. low > 0 eventually degenerates: with low * P(R <
    0) >= P(R > 0) a tabular policy ends at a vertex.
    """
    return tapered(logp_BT, batch, level="sequence", low=low, high=high, threshold=0.0)


def tapered(
    logp_BT: Tensor, batch: Batch, *, level: str, low: float, high: float, threshold: float
) -> Tensor:
    """Return -A log pi for A > threshold, and -sg[clip(r, low, high)] A log pi else, r = pi/mu at a level."""
    tapered_BT = log_ratio(level, logp_BT, batch).exp().clamp(low, high)
    weight_BT = torch.where(batch.adv_BT > threshold, torch.ones_like(tapered_BT), tapered_BT)
    return score_loss(weight_BT, logp_BT, batch)


@objective.variant(
    "topr@roll", source="alibaba/ROLL 8eb27cc2 2026-08-18, the policy-gradient variant worker",
    ratio="token", reads=("anchor", "adv", "reward"), scope="token",
    max_weight="max(positive_weight, negative_weight)",
)  # fmt: skip
def topr_roll(
    logp_BT: Tensor, batch: Batch, *, positive_weight: float = 1.0, negative_weight: float = 1.0
) -> Tensor:
    """L = -c A log pi for R > 0, and -c sg[min(u, 1)] A log pi for R <= 0, u = pi/anchor of the token.

    c is a weight for each kind. The sign of the reward, not of the advantage, selects tapering. For rewards
    in {0, 1} with a baseline that is the same; if all rewards are positive nothing tapers. The ratio is per
    token and to the trainer, so staleness before the update is invisible.
    """
    tapered_BT = log_token(logp_BT, batch, "anchor").exp().clamp(max=1.0)
    good_BT = (batch.reward_B > 0)[..., None].expand_as(tapered_BT)
    positive_BT = torch.full_like(tapered_BT, positive_weight)
    return score_loss(torch.where(good_BT, positive_BT, negative_weight * tapered_BT), logp_BT, batch)
