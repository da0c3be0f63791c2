"""SPEAR's self-imitation: replay responses that did better than usual beside the on-policy update."""

import math

import torch
from torch import Tensor

from testbed.data.batch import EXPERT, REPLAY, ROLLOUT, Batch
from testbed.losses.clipping import one_sided_clip
from testbed.losses.ratios import log_token
from testbed.objectives import objective
from testbed.objectives.mixture.origins import SHARES


def replay_weight(step: int, *, full: int = 200) -> float:
    """Return kappa at a step: half a cosine from 0 to 1 at step `full`, then 1."""
    return (1 - math.cos(math.pi * min(step, full) / full)) / 2


@objective(
    "self_imitation", source="SPEAR (2025), arXiv:2509.22601; TencentYoutuResearch/SPEAR", on_policy=None,
    reads=("mu", "anchor", "adv", "origin"), scope="batch", statistic=SHARES,
)  # fmt: skip
def self_imitation(
    logp_BT: Tensor, batch: Batch, *, kappa: float = 1.0, eps_low: float = 0.2, eps_high: float = 0.28
) -> Tensor:
    """L = N/N_o PPO-clip(pi/anchor, A) on rollouts, kappa N/N_r PPO-clip(pi/mu, max(A, 0)) on replay.

    N_o and N_r are the tokens of rollouts and of replayed sequences, N all tokens: aggregated with token_mean
    the loss is the mean over rollouts plus kappa times the mean over replayed tokens. A replayed advantage
    should be recalibrated, R minus the median of past baselines; it counts only if positive. A replayed ratio
    is to the log-probability stored with it. Expert sequences have no loss. kappa follows `replay_weight`; 1
    is its end. The paper's covariance clipping removes a random share of tokens and is omitted: a loss here
    is a function of its inputs.
    """
    origin_B = batch.require("origin_B", "self_imitation")
    replayed_B, expert_B = origin_B == REPLAY, origin_B == EXPERT
    share_K = SHARES(logp_BT, batch)
    scale_B = torch.where(replayed_B, kappa / share_K[..., REPLAY, None], 1 / share_K[..., ROLLOUT, None])
    scale_B = scale_B.masked_fill(expert_B, 0.0)
    # A zero advantage means zero loss; ratios of expert sequences are meaningless and might overflow.
    dropped_BT = expert_B.unsqueeze(-1) | (replayed_B.unsqueeze(-1) & (batch.adv_BT < 0))
    adv_BT = torch.where(dropped_BT, torch.zeros_like(batch.adv_BT), batch.adv_BT)
    log_rho_BT, log_u_BT = log_token(logp_BT, batch), log_token(logp_BT, batch, base="anchor")
    log_u_BT = torch.where(replayed_B.unsqueeze(-1), log_rho_BT, log_u_BT)
    clipped_BT = one_sided_clip(log_u_BT, adv_BT, 1 - eps_low, 1 + eps_high)
    return -scale_B.unsqueeze(-1).to(clipped_BT.dtype) * clipped_BT * adv_BT
