"""GMPO: clip each token's log-ratio, then take the geometric mean."""

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.aggregate import spread
from testbed.losses.ratios import log_token, sequence_advantage
from testbed.objectives import objective


@objective(
    "gmpo",
    source="Zhao et al. (2025), arXiv:2507.20673; callsys/GMPO 205b2bf4 2025-07-30, train_zero_math_gmpo.py",
    ratio="geometric", reads=("anchor", "adv"), scope="sequence", on_policy="1/T",
)  # fmt: skip
def gmpo(logp_BT: Tensor, batch: Batch, *, eps_low: float = 0.4, eps_high: float = 0.4) -> Tensor:
    """L = -(1/T) g A, g = exp((1/T) sum_t l_t), l_t = min(log u, eps_high) or, A < 0, max(log u, -eps_low).

    u = pi/anchor; the bounds are in nats, so 0.4 keeps u within [0.67, 1.49]. A clipped token has no gradient
    but still counts in g; every other token weighs g/T, independent of its ratio. A is the sequence's mean
    advantage, spread over its tokens. The formula is the one quoted in its repository; the paper's equation
    was not read.
    """
    adv_B1 = sequence_advantage(batch)
    return _mean_of_clipped(logp_BT, batch, adv_B1 >= 0, adv_B1 < 0, eps_low, eps_high)


def _mean_of_clipped(
    logp_BT: Tensor, batch: Batch, rising: Tensor, falling: Tensor, eps_low: float, eps_high: float
) -> Tensor:
    log_u_BT = log_token(logp_BT, batch, base="anchor")
    clipped_BT = clip_against_sign(log_u_BT, rising, falling, -eps_low, eps_high)
    log_g_B1 = clipped_BT.sum(-1, keepdim=True) / batch.mask_BT.sum(-1, keepdim=True)
    return spread(-log_g_B1.exp() * sequence_advantage(batch), batch.mask_BT)


def clip_against_sign(log_u_BT: Tensor, rising: Tensor, falling: Tensor, low: float, high: float) -> Tensor:
    """Return log-ratios clipped above `high` where `rising`, below `low` where `falling`, and 0 elsewhere."""
    capped_BT = torch.where(rising, log_u_BT.clamp(max=high), torch.zeros_like(log_u_BT))
    return torch.where(falling, log_u_BT.clamp(min=low), capped_BT)


@objective.variant(
    "gmpo@verl", source="verl-project/verl 1dda039b 2026-08-22, verl/trainer/ppo/core_algos.py (geo_mean)"
)
def gmpo_verl(logp_BT: Tensor, batch: Batch, *, eps_low: float = 0.2, eps_high: float = 0.2) -> Tensor:
    """L = -(1/T) g A, g = exp((1/T) sum_t l_t), l_t clipped by the sign of A_t; 0 where A_t = 0.

    Its configuration's 0.2, read as nats, is half the paper's: [0.82, 1.22]. The clipped side is chosen token
    by token; a token without an advantage neither moves nor counts in g.
    """
    adv_BT = batch.adv_BT
    return _mean_of_clipped(logp_BT, batch, adv_BT > 0, adv_BT < 0, eps_low, eps_high)
