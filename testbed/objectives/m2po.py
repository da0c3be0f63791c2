"""M2PO: drop the tokens that move furthest until the second moment of log-ratios fits a budget."""

from __future__ import annotations

import torch
from torch import Tensor

from testbed.batch import Batch
from testbed.objectives import objective
from testbed.ratios import log_token


def trust_region_keep(log_rho_BT: Tensor, adv_BT: Tensor, mask_BT: Tensor, tau: float) -> Tensor:
    """Return Algorithm 1's mask: False for the largest (log rho)^2 among harmful tokens over budget.

    Harmful tokens move with the sign of their advantage: A > 0 and rho > 1, or A < 0 and rho < 1.
    The loop "drop the largest while the mean exceeds tau" keeps, after sorting upwards, the longest
    prefix whose running mean is at most tau: running means of a sorted list never fall.
    """
    harmful_BT = mask_BT & (adv_BT * log_rho_BT > 0)
    square = torch.where(harmful_BT, log_rho_BT**2, torch.full_like(log_rho_BT, torch.inf)).flatten(-2)
    order = square.sort(dim=-1, stable=True)
    rank = torch.arange(1, square.shape[-1] + 1, device=square.device)
    fits = (order.values.cumsum(-1) / rank) <= tau
    keep = torch.zeros_like(fits).scatter(-1, order.indices, fits)
    return ~harmful_BT | keep.unflatten(-1, harmful_BT.shape[-2:])


@objective(
    "m2po",
    source="Zheng et al. (2025), arXiv:2510.01161, Algorithm 1",
    ratio="token",
    on_policy=1,
    batch_statistic=True,
)
def m2po(logp_BT: Tensor, batch: Batch, *, tau: float = 0.04) -> Tensor:
    """L = -M rho A, M = 0 for harmful tokens dropped until mean (log rho)^2 over the rest is <= tau.

    rho = pi/mu. Kept tokens have no bound on their weight. Aggregate with token_mean: the paper
    divides by all tokens, dropped ones included (footnote 2). tau = 0.04 in every run of the paper.
    """
    log_rho_BT = log_token(logp_BT, batch)
    keep_BT = trust_region_keep(log_rho_BT.detach(), batch.adv_BT, batch.mask_BT, tau)
    # Without an advantage there is nothing to weigh, even where rho overflows.
    keep_BT = keep_BT & (batch.adv_BT != 0)
    return -torch.where(keep_BT, log_rho_BT, torch.zeros_like(log_rho_BT)).exp() * batch.adv_BT * keep_BT
