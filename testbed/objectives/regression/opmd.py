"""Online policy mirror descent: four ways to step toward mu exp(R / tau) / Z."""

from torch import Tensor

from testbed.data.batch import Batch
from testbed.data.groups import group_average, group_size
from testbed.losses.aggregate import spread
from testbed.losses.ratios import log_token
from testbed.objectives import objective


@objective(
    "kimi_opmd", source="Kimi Team (2025), Kimi k1.5, arXiv:2501.12599", ratio="sequence",
    reads=("mu", "adv"), scope="sequence", sign=False, penalty=True,
)  # fmt: skip
def kimi_opmd(logp_BT: Tensor, batch: Batch, *, tau: float = 1.0) -> Tensor:
    """L = -A log pi + (1/T) tau/2 (log W)^2, W = prod_t pi/mu.

    The square belongs to the sequence and is spread evenly over its T tokens: their sum is -A log pi(y) +
    tau/2 (log W)^2. A = R - baseline: with the group's log-mean-exp at temperature tau the minimizer is mu
    exp(R / tau) / Z; with the group's mean (the paper's) it is a softer policy. OAPL(beta1, beta2) has 2
    beta2 times this gradient at tau = beta2 with the log-mean-exp at beta1. Nothing is normalized here:
    Trinity-RFT divides by the tokens of the batch (aggregate with token_mean) and by max(1, tau). Public
    notes on the paper give the form without its tau; 1 is Trinity-RFT's.
    """
    log_w_B1 = log_token(logp_BT, batch).sum(-1, keepdim=True)
    return -batch.adv_BT * logp_BT + spread(tau / 2 * log_w_B1.square(), batch.mask_BT)


@objective.variant(
    "kimi_opmd@roll", source="alibaba/ROLL 8eb27cc2 2026-08-18, policy loss 'kimi15'", ratio="token",
    reads=("anchor", "adv"), scope="token",
)  # fmt: skip
def kimi_opmd_roll(logp_BT: Tensor, batch: Batch, *, tau: float = 0.1) -> Tensor:
    """L = -A log pi + tau/2 (log u)^2, u = pi/anchor.

    The paper squares the sum of a sequence's log-ratios, this sums the squares of its tokens' log-ratios:
    without the cross terms a drift shared by all T tokens is held back T times less.
    """
    log_u_BT = log_token(logp_BT, batch, base="anchor")
    return -batch.adv_BT * logp_BT + tau / 2 * log_u_BT.square()


@objective(
    "rec_k2",
    source="Yao et al. (2025), arXiv:2509.24203; yanxi-chen/Trinity-RFT, rec_policy_loss.py, regularizer k2",
    reads=("mu", "adv"), sign=False, penalty=True,
)  # fmt: skip
def rec_k2(logp_BT: Tensor, batch: Batch, *, c: float = 0.1) -> Tensor:
    """L = -A log pi + c (log rho)^2, rho = pi/mu.

    Group-relative REINFORCE (A = R - mean) with the regularizer of Kimi's OPMD token by token; its factor
    1/2 is absorbed in c. Aggregate with token_mean. c = 0.1 is the value of the published examples.
    """
    return -batch.adv_BT * logp_BT + c * log_token(logp_BT, batch).square()


@objective(
    "min_opmd", source="Yao et al. (2025), arXiv:2509.24203; Trinity-RFT, policy loss 'opmd'", ratio="none",
    reads=("adv",), on_policy=0.5, max_weight="1/(1+tau)",
)  # fmt: skip
def min_opmd(logp_BT: Tensor, batch: Batch, *, tau: float = 1.0) -> Tensor:
    """L = -A log pi / (1 + tau).

    Trinity-RFT's "opmd": REINFORCE at a learning rate divided by 1 + tau. It regularizes toward the current
    policy, so it has no ratio. Aggregate with token_mean.
    """
    return -batch.adv_BT * logp_BT / (1 + tau)


def _centered_consistency(logp_BT: Tensor, batch: Batch, tau: float) -> Tensor:
    """Return (d - mean_group d)^2, d = R - tau (log pi(y) - sg[log pi(y)]); [..., B]."""
    move_BT = log_token(logp_BT, batch) - log_token(logp_BT.detach(), batch)
    d_B = batch.reward_B.to(move_BT.dtype) - tau * move_BT.sum(-1)
    square_B: Tensor = (d_B - group_average(d_B, batch.group_B)).square()
    return square_B


@objective(
    "pairwise_opmd", source="Yao et al. (2025), arXiv:2509.24203, pairwise consistency", on_policy=None,
    ratio="none", reads=("reward", "group"), detached=True,
)  # fmt: skip
def pairwise_opmd(logp_BT: Tensor, batch: Batch, *, tau: float = 1.0) -> Tensor:
    """L = (1/T) G (d - mean_group d)^2, d = R - tau (log pi(y) - sg[log pi(y)]).

    Over a group of G this sums to (d_i - d_j)^2 over pairs i < j: the consistency condition of mu exp(R /
    tau) / Z without Z, with the current policy in place of mu. For any sampler its gradient is 2 tau G times
    that of group-relative REINFORCE, -(R - mean) log pi. Spread evenly over the T tokens.
    """
    size_B = group_size(batch.reward_B, batch.group_B)
    return spread((size_B * _centered_consistency(logp_BT, batch, tau)).unsqueeze(-1), batch.mask_BT)


@objective.variant(
    "pairwise_opmd@trinity",
    source="yanxi-chen/Trinity-RFT 9051d637 2026-04-09, history of core_algos.py, marked there as untested",
)
def pairwise_opmd_trinity(logp_BT: Tensor, batch: Batch, *, tau: float = 1.0) -> Tensor:
    """L = (1/T) (d - mean_group d)^2 / max(1, tau), d = R - tau (log pi(y) - sg[log pi(y)]).

    Without the paper's factor G and divided by max(1, tau): a smaller step in the same direction. Trinity-RFT
    also divides by the tokens of the batch; aggregate with token_mean.
    """
    square_B = _centered_consistency(logp_BT, batch, tau) / max(1.0, tau)
    return spread(square_B.unsqueeze(-1), batch.mask_BT)
