"""REINFORCE with a detached importance weight at a chosen level, optionally truncated."""

import math

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.ratios import log_ratio, log_token
from testbed.losses.score_loss import score_loss
from testbed.objectives import objective


@objective(
    "importance_reinforce",
    source="Precup, Sutton & Singh (2000), ICML, Eq. 2; truncation: Ionides (2008), JCGS 17, 295-311",
    ratio="sequence", reads=("mu", "adv"), scope="sequence", detached=True, max_weight="cap",
)  # fmt: skip
def importance_reinforce(
    logp_BT: Tensor, batch: Batch, *, level: str = "sequence", cap: float = math.inf
) -> Tensor:
    """L = -sg[min(W, cap)] A log pi, W = pi/mu at a level: sequence, prefix, token or geometric.

    With level "sequence" and no cap it is unbiased for the policy gradient wherever mu > 0; its variance
    grows with E_mu W^2. With a sampled terminal reward every other level is biased.
    """
    weight_BT = log_ratio(level, logp_BT, batch).exp().clamp(max=cap)
    return score_loss(weight_BT, logp_BT, batch)


@objective.variant(
    "importance_reinforce@tinker",
    source="thinking-machines-lab/tinker-cookbook 9dfcc3a2 2026-08-19, tutorials/202_loss_functions.py",
    ratio="token", scope="token", detached=False, max_weight=None,
)  # fmt: skip
def importance_reinforce_tinker(logp_BT: Tensor, batch: Batch) -> Tensor:
    """L = -rho A, rho = pi/mu of the token; no bound.

    Its gradient is that of the detached weight, rho A grad log pi; only its value differs. Token level:
    biased with a sampled terminal reward. Aggregate with token_sum.
    """
    log_rho_BT = log_token(logp_BT, batch)
    # A token without an advantage has weight 0, even where rho overflows.
    return -torch.where(batch.adv_BT != 0, log_rho_BT, torch.zeros_like(log_rho_BT)).exp() * batch.adv_BT
