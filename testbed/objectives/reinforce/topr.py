"""TOPR: positives keep weight one, negatives taper off as the policy leaves them."""

from __future__ import annotations

import torch
from torch import Tensor

from testbed.batch import Batch
from testbed.objectives import objective
from testbed.ratios import log_sequence
from testbed.score import score_loss


@objective(
    "topr",
    source="Le Roux et al. (2025), arXiv:2503.14286, Eq. 6",
    ratio="sequence",
    reads=("mu", "adv"),
    scope="sequence",
    detached=True,
    on_policy=1,
    max_weight="max(1, high)",
)
def topr(logp_BT: Tensor, batch: Batch, *, low: float = 0.0, high: float = 1.0) -> Tensor:
    """L = -A log pi for A > 0, and -sg[clip(W, low, high)] A log pi for A <= 0, W the sequence ratio.

    The paper's signal is R in {-1, +1} without a baseline. low > 0 eventually degenerates: a share
    low * P(R < 0) >= P(R > 0) drives a tabular policy to a vertex.
    """
    tapered_BT = log_sequence(logp_BT, batch).exp().clamp(low, high)
    weight_BT = torch.where(batch.adv_BT > 0, torch.ones_like(tapered_BT), tapered_BT)
    return score_loss(weight_BT, logp_BT, batch)
