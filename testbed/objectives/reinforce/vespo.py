"""VESPO: a smooth kernel of the sequence ratio, with no bound to tune and no length normalization."""

import math

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.ratios import log_sequence, log_token
from testbed.losses.score_loss import score_loss
from testbed.objectives import objective


def kernel(log_w_BT: Tensor, adv_BT: Tensor, pos: tuple[float, float], neg: tuple[float, float]) -> Tensor:
    """Return W^k exp(lam (1 - W)) from log W, (k, lam) by the sign of A; finite for every log W."""
    k_BT = torch.full_like(log_w_BT, neg[0]).masked_fill(adv_BT > 0, pos[0])
    lam_BT = torch.full_like(log_w_BT, neg[1]).masked_fill(adv_BT > 0, pos[1])
    # Summed before exp: W^k alone overflows where exp(-lam W) is 0, and their product is NaN.
    return (k_BT * log_w_BT + lam_BT * (1 - log_w_BT.exp())).exp()


@objective(
    "vespo", source="Shen et al. (2026), arXiv:2602.10693", ratio="sequence", reads=("mu", "adv"),
    scope="sequence", detached=True,
    max_weight="max((k_pos/lam_pos)**k_pos*exp(lam_pos-k_pos), (k_neg/lam_neg)**k_neg*exp(lam_neg-k_neg))",
)  # fmt: skip
def vespo(
    logp_BT: Tensor,
    batch: Batch,
    *,
    k_pos: float = 2.0,
    lam_pos: float = 3.0,
    k_neg: float = 3.0,
    lam_neg: float = 2.0,
) -> Tensor:
    """L = -sg[W^k exp(lam (1 - W))] A log pi, W = prod_t pi/mu, k and lam by the sign of A.

    The weight is 1 on-policy, largest at W = k/lam (2/3 for A > 0, 3/2 for A < 0) and 0 in both limits.
    Form and values as TRL states them; the paper's body was not read. Aggregate with token_mean.
    """
    log_w_BT = log_sequence(logp_BT, batch)
    weight_BT = kernel(log_w_BT, batch.adv_BT, (k_pos, lam_pos), (k_neg, lam_neg))
    return score_loss(weight_BT, logp_BT, batch)


@objective.variant(
    "vespo@trl",
    source="huggingface/trl f2cd5771 2026-07-24, trl/trainer/grpo_trainer.py",
    reads=("anchor", "adv"),
)
def vespo_trl(
    logp_BT: Tensor,
    batch: Batch,
    *,
    k_pos: float = 2.0,
    lam_pos: float = 3.0,
    k_neg: float = 3.0,
    lam_neg: float = 2.0,
) -> Tensor:
    """L = -sg[W^k exp(lam (1 - W))] A log pi, W = prod_t pi/anchor with clamped logarithms.

    Token log-ratios are clamped to +-20, log W to [log 1e-8, 20]. Beyond these the weight is below 1e-12
    anyway, so clamping matters only if other tokens offset an extreme one. Omits its engine correction, which
    would multiply W by a truncated anchor/mu; staleness is then invisible.
    """
    log_u_BT = log_token(logp_BT, batch, "anchor").clamp(-20.0, 20.0)
    log_w_B1 = log_u_BT.sum(-1, keepdim=True).clamp(math.log(1e-8), 20.0)
    weight_BT = kernel(log_w_B1.expand_as(log_u_BT), batch.adv_BT, (k_pos, lam_pos), (k_neg, lam_neg))
    return score_loss(weight_BT, logp_BT, batch)
