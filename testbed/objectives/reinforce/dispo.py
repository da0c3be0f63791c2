"""DISPO: CISPO with separate bounds for each sign of the advantage."""

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.ratios import log_token
from testbed.losses.score_loss import score_loss
from testbed.objectives import objective


@objective(
    "dispo", source="Karaman et al. (2026), arXiv:2602.00983", reads=("mu", "adv"), detached=True,
    max_weight="1+max(eps_high_pos, eps_high_neg)",
)  # fmt: skip
def dispo(
    logp_BT: Tensor,
    batch: Batch,
    *,
    eps_low_pos: float = 0.2,
    eps_high_pos: float = 10.0,
    eps_low_neg: float = 1.0,
    eps_high_neg: float = 100.0,
) -> Tensor:
    """L = -sg[clip(rho, 1 - eps_low, 1 + eps_high)] A log pi, eps by the sign of A, rho = pi/mu.

    Correct answers never weigh less than 0.8; wrong ones taper to 0 and have almost no upper bound. A = 0 has
    weight 0. The four values, as distances from 1, are a secondary source's; of the paper only
    the abstract was read, and it does not say the base of the ratio. Aggregate with token_mean.
    """
    rho_BT = log_token(logp_BT, batch).exp()
    positive_BT = rho_BT.clamp(1 - eps_low_pos, 1 + eps_high_pos)
    negative_BT = rho_BT.clamp(1 - eps_low_neg, 1 + eps_high_neg)
    return score_loss(torch.where(batch.adv_BT > 0, positive_BT, negative_BT), logp_BT, batch)
