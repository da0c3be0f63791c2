"""M2PO: drop the tokens that move furthest until the second moment of log-ratios fits a budget."""

from __future__ import annotations

import torch
from torch import Tensor

from testbed.batch import Batch
from testbed.objectives import objective
from testbed.ratios import log_token
from testbed.statistic import BatchStatistic


def harmful(log_rho_BT: Tensor, batch: Batch) -> Tensor:
    """Return the tokens that move with their advantage: A > 0 and rho > 1, or A < 0 and rho < 1."""
    return batch.mask_BT & (batch.adv_BT * log_rho_BT > 0)


def harmful_squares(logp_BT: Tensor, batch: Batch, **_: float) -> Tensor:
    """Return (log rho)^2 of the harmful tokens and infinity for the others; [..., 1, B T]."""
    log_rho_BT = log_token(logp_BT, batch)
    square_BT = log_rho_BT.square().masked_fill(~harmful(log_rho_BT, batch), torch.inf)
    return square_BT.flatten(-2).unsqueeze(-2)


def largest_kept(square_1K: Tensor, *, tau: float = 0.04) -> Tensor:
    """Return the largest (log rho)^2 that Algorithm 1 keeps; [...]; -1 when it keeps none.

    The loop "drop the largest while the mean exceeds tau" keeps, after sorting upwards, the longest
    prefix whose running mean is at most tau: running means of a sorted list never fall.
    """
    ordered_K = square_1K.squeeze(-2).sort(-1).values
    rank_K = torch.arange(1, ordered_K.shape[-1] + 1, device=ordered_K.device)
    # With tau = inf the infinities of tokens that are not harmful would pass, and change nothing.
    fits_K = ordered_K.cumsum(-1) / rank_K <= tau
    return torch.where(fits_K, ordered_K, -torch.ones_like(ordered_K)).max(-1).values


BUDGET = BatchStatistic(harmful_squares, largest_kept)


def trust_region_keep(logp_BT: Tensor, batch: Batch, *, tau: float = 0.04) -> Tensor:
    """Return Algorithm 1's mask: False for the harmful tokens with the largest (log rho)^2, over budget."""
    limit = BUDGET(logp_BT, batch, tau=tau)[..., None, None]
    log_rho_BT = log_token(logp_BT.detach(), batch)
    return ~harmful(log_rho_BT, batch) | (log_rho_BT.square() <= limit)


@objective(
    "m2po",
    source="Zheng et al. (2025), arXiv:2510.01161, Algorithm 1",
    ratio="token",
    reads=("mu", "adv"),
    scope="batch",
    on_policy=1,
    statistic=BUDGET,
    keep=trust_region_keep,
)
def m2po(logp_BT: Tensor, batch: Batch, *, tau: float = 0.04) -> Tensor:
    """L = -M rho A, M = 0 for harmful tokens dropped until mean (log rho)^2 over the rest is <= tau.

    rho = pi/mu. Kept tokens have no bound on their weight. Aggregate with token_mean: the paper
    divides by all tokens, dropped ones included (footnote 2). tau = 0.04 in every run of the paper.
    Tokens that tie with the largest kept one are kept too.
    """
    # Without an advantage there is nothing to weigh, even where rho overflows.
    keep_BT = trust_region_keep(logp_BT, batch, tau=tau) & (batch.adv_BT != 0)
    log_rho_BT = log_token(logp_BT, batch)
    return -torch.where(keep_BT, log_rho_BT, torch.zeros_like(log_rho_BT)).exp() * batch.adv_BT * keep_BT
