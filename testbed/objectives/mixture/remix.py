"""ReMix: weigh stale tokens by pi/mu, and clip around the policy at the start of the update."""

import math

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.ratios import log_mismatch, log_token
from testbed.objectives import objective


def kl_convex_weight(step: int) -> float:
    """Return lambda of lambda KL(pi || base) + (1 - lambda) KL(pi || previous) at a step.

    1 until step 50, then 0.1 less for every 10 steps begun, down to 0.5.
    """
    return max(1 - 0.1 * math.ceil(max(step - 50, 0) / 10), 0.5)


@objective("remix", source="ReMix (2025), arXiv:2507.06892, Mix-PPG", reads=("mu", "anchor", "adv"))
def remix(logp_BT: Tensor, batch: Batch, *, eps: float = 0.2) -> Tensor:
    """L = -min(rho A, clip(rho, d - eps, d + eps) A), rho = pi/mu, d = anchor/mu.

    The weight corrects for the sampler; the trust region lies around the anchor: rho <= d + eps means pi <=
    anchor + eps mu, an absolute band that is wide for tokens likely under the sampler. With mu = anchor it is
    PPO's clip. The paper's penalty mixes two KL terms by `kl_convex_weight`. Read in secondary sources,
    which name no eps: 0.2 is PPO's.
    """
    log_rho_BT = log_token(logp_BT, batch)
    rho_BT, center_BT = log_rho_BT.detach().exp(), log_mismatch(batch).exp()
    above_BT = (batch.adv_BT > 0) & (rho_BT > center_BT + eps)
    below_BT = (batch.adv_BT < 0) & (rho_BT < center_BT - eps)
    bound_BT = torch.where(above_BT, center_BT + eps, center_BT - eps)
    cut_BT = above_BT | below_BT
    # Clipped tokens, and tokens without an advantage, skip exp: no 0 * inf.
    read_BT = torch.where(cut_BT | (batch.adv_BT == 0), torch.zeros_like(log_rho_BT), log_rho_BT)
    return -torch.where(cut_BT, bound_BT, read_BT.exp()) * batch.adv_BT
