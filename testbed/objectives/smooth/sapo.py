"""SAPO: a sigmoid gate in place of the clip."""

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.ratios import log_geometric, log_token, sequence_advantage
from testbed.losses.score_loss import score_loss
from testbed.objectives import objective


def temperature(log_u_BT: Tensor, adv_BT: Tensor, tau_pos: float, tau_neg: float) -> Tensor:
    """Return tau_pos where A > 0 and tau_neg elsewhere, in the precision of log u."""
    return torch.full_like(log_u_BT.detach(), tau_neg).masked_fill(adv_BT > 0, tau_pos)


def gate(log_u_BT: Tensor, tau_BT: Tensor) -> Tensor:
    """Return f(u) = (4 / tau) sigmoid(tau (u - 1)); its derivative is 1 at u = 1 for any tau."""
    # Beyond tau (u - 1) = 1000 the sigmoid is 1 and its derivative 0 in every precision; cutting there
    # keeps an overflowing u from giving 0 * inf.
    last_BT = torch.log1p(1000 / tau_BT)
    return 4 / tau_BT * torch.sigmoid(tau_BT * torch.expm1(torch.minimum(log_u_BT, last_BT)))


@objective("sapo", source="SAPO (2025), arXiv:2511.20347", reads=("anchor", "adv"))
def sapo(logp_BT: Tensor, batch: Batch, *, tau_pos: float = 1.0, tau_neg: float = 1.05) -> Tensor:
    """L = -(4/tau) sigmoid(tau (u - 1)) A, u = pi/anchor, tau by the sign of A.

    The weight u sech^2(tau (u - 1) / 2) is 1 on-policy and fades on both sides, also for tokens that move
    against their advantage; negatives fade a little faster. It is bounded, by 1.57 at tau = 1, without a
    closed form. Aggregate with sequence_mean (AReaL: token_mean). TRL, verl, SkyRL and AReaL agree on it; the
    paper's body was not read.
    """
    log_u_BT = log_token(logp_BT, batch, base="anchor")
    tau_BT = temperature(log_u_BT, batch.adv_BT, tau_pos, tau_neg)
    return -gate(log_u_BT, tau_BT) * batch.adv_BT


@objective.variant(
    "sapo@trinity", source="yanxi-chen/Trinity-RFT 9051d637 2026-04-09, trinity/algorithm/policy_loss_fn",
    on_policy=None, detached=True, max_weight="4 / min(tau_pos, tau_neg)",
)  # fmt: skip
def sapo_trinity(logp_BT: Tensor, batch: Batch, *, tau_pos: float = 1.0, tau_neg: float = 1.05) -> Tensor:
    """L = -sg[(4/tau) sigmoid(tau (u - 1))] A log pi, u = pi/anchor, tau by the sign of A.

    The gate itself is the weight; in the paper the weight is the gate's derivative. It is 2/tau on-policy and
    rises to 4/tau: REINFORCE with a bounded weight that does not fade. Twice the step, no trust region.
    """
    log_u_BT = log_token(logp_BT, batch, base="anchor")
    tau_BT = temperature(log_u_BT, batch.adv_BT, tau_pos, tau_neg)
    return score_loss(gate(log_u_BT, tau_BT), logp_BT, batch)


@objective.variant(
    "sapo@areal-sequence",
    source="inclusionAI/AReaL 4aef98d8 2026-05-21, areal/utils/functional (sapo_loss_fn, level 'sequence')",
    ratio="geometric",
    scope="sequence",
)
def sapo_areal_sequence(
    logp_BT: Tensor, batch: Batch, *, tau_pos: float = 1.0, tau_neg: float = 1.05
) -> Tensor:
    """L = -(4/tau) sigmoid(tau (s - 1)) A at every token, s = (prod_t pi/anchor)^(1/T), A the mean advantage.

    One gate for the whole sequence: its mean ratio stays close to 1, so with the token's temperatures the
    gate hardly closes. Every token has the full sequence loss: averaged over all tokens, a sequence counts by
    its length. There the anchor is the sampler or its recomputation, never a third policy.
    """
    log_s_BT = log_geometric(logp_BT, batch, base="anchor")
    adv_BT = sequence_advantage(batch).expand_as(log_s_BT)
    return -gate(log_s_BT, temperature(log_s_BT, adv_BT, tau_pos, tau_neg)) * adv_BT
