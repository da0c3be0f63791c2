"""M2PO: drop the tokens that move furthest until the second moment of log-ratios fits a budget."""

import math

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.batch_statistic import BatchStatistic
from testbed.losses.clipping import one_sided_clip
from testbed.losses.ratios import log_mismatch, log_token
from testbed.objectives import objective


def harmful(log_rho_BT: Tensor, batch: Batch) -> Tensor:
    """Return the tokens that have moved with their advantage: A > 0 and rho > 1, or A < 0 and rho < 1."""
    return batch.mask_BT & (batch.adv_BT * log_rho_BT > 0)


def harmful_squares(logp_BT: Tensor, batch: Batch, *, log_clamp: float = math.inf, **_: float) -> Tensor:
    """Return (log rho)^2 of the harmful tokens and infinity for the others; [..., 1, B T]."""
    log_rho_BT = log_token(logp_BT, batch).clamp(-log_clamp, log_clamp)
    square_BT = log_rho_BT.square().masked_fill(~harmful(log_rho_BT, batch), torch.inf)
    return square_BT.flatten(-2).unsqueeze(-2)


def largest_kept(square_1K: Tensor, *, tau: float = 0.04, **_: float) -> Tensor:
    """Return the largest (log rho)^2 that Algorithm 1 keeps; [...]; -1 when it keeps none.

    The loop "drop the largest while the mean exceeds tau" keeps the longest sorted prefix with a running mean
    of at most tau: running means of a sorted list never fall.
    """
    ordered_K = square_1K.squeeze(-2).sort(-1).values
    rank_K = torch.arange(1, ordered_K.shape[-1] + 1, device=ordered_K.device)
    # With tau = inf the infinities of tokens that are not harmful pass too, which is harmless.
    fits_K = ordered_K.cumsum(-1) / rank_K <= tau
    return torch.where(fits_K, ordered_K, -torch.ones_like(ordered_K)).max(-1).values


BUDGET = BatchStatistic(harmful_squares, largest_kept)


def trust_region_keep(
    logp_BT: Tensor, batch: Batch, *, tau: float = 0.04, log_clamp: float = math.inf
) -> Tensor:
    """Return Algorithm 1's mask: False for the harmful tokens with the largest (log rho)^2 over budget."""
    limit = BUDGET(logp_BT, batch, tau=tau, log_clamp=log_clamp)[..., None, None]
    log_rho_BT = log_token(logp_BT.detach(), batch).clamp(-log_clamp, log_clamp)
    return ~harmful(log_rho_BT, batch) | (log_rho_BT.square() <= limit)


@objective(
    "m2po", source="Zheng et al. (2025), arXiv:2510.01161, Algorithm 1", reads=("mu", "adv"), scope="batch",
    statistic=BUDGET, keep=trust_region_keep,
)  # fmt: skip
def m2po(logp_BT: Tensor, batch: Batch, *, tau: float = 0.04) -> Tensor:
    """L = -M rho A, M = 0 for harmful tokens dropped until mean (log rho)^2 over the rest is <= tau.

    rho = pi/mu. The weight of kept tokens is unbounded. Aggregate with token_mean: the paper divides by all
    tokens, dropped ones included (footnote 2). tau = 0.04 in every run of the paper. Ties with the largest
    kept token are kept too.
    """
    return _masked(log_token(logp_BT, batch), trust_region_keep(logp_BT, batch, tau=tau), batch)


def _masked(log_rho_BT: Tensor, keep_BT: Tensor, batch: Batch) -> Tensor:
    # A token without an advantage has weight 0, even where rho overflows.
    keep_BT = keep_BT & (batch.adv_BT != 0)
    return -torch.where(keep_BT, log_rho_BT, torch.zeros_like(log_rho_BT)).exp() * batch.adv_BT * keep_BT


@objective.variant("m2po@trinity", source="agentscope-ai/Trinity-RFT, the M2PO policy loss")
def m2po_trinity(logp_BT: Tensor, batch: Batch, *, tau: float = 0.04, log_clamp: float = 20.0) -> Tensor:
    """L = m2po with log rho clamped to +-20 before the moment and the exponential.

    Algorithm 1 as in the paper; a kept token beyond e^+-20 keeps its value but loses its gradient.
    """
    keep_BT = trust_region_keep(logp_BT, batch, tau=tau, log_clamp=log_clamp)
    return _masked(log_token(logp_BT, batch).clamp(-log_clamp, log_clamp), keep_BT, batch)


def previous_breakpoint(square_1K: Tensor, *, tau: float = 0.04, **_: float) -> Tensor:
    """Return the (log rho)^2 at which the released code clips; [...]; infinity within budget.

    The code seeks a cap with sum of min(square, cap) = tau times the number of harmful tokens. It walks up
    the sorted squares to the first that reaches this sum and returns the previous one (0 for the first), not
    the cap in between.
    """
    ordered_K = square_1K.squeeze(-2).sort(-1).values
    counts_K = torch.isfinite(ordered_K)
    finite_K = torch.where(counts_K, ordered_K, torch.zeros_like(ordered_K))
    number = counts_K.sum(-1, keepdim=True).to(ordered_K.dtype)  # in float32 tau * number would round
    left_K = number - torch.arange(1, ordered_K.shape[-1] + 1, device=ordered_K.device)
    running_K = finite_K.cumsum(-1)
    below_K = counts_K & (finite_K * left_K + running_K < tau * number)
    previous = torch.where(below_K, finite_K, torch.zeros_like(finite_K)).max(-1).values
    # The slack keeps squares that all equal tau within the budget, though their sum rounds.
    within = running_K[..., -1] <= (tau + 1e-12) * number.squeeze(-1)
    return torch.where(within, torch.full_like(previous, torch.inf), previous)


BREAKPOINT = BatchStatistic(harmful_squares, previous_breakpoint)


def squared_reach(log_rho_BT: Tensor, limit: Tensor, least_low: float, least_high: float) -> Tensor:
    """Return the largest allowed (log rho)^2 of every token: the limit, or more where a floor allows it.

    The bounds of rho are min(e^-t, least_low) and max(e^t, least_high), t^2 the limit; at 1 both floors are
    off. Tokens at a floor are kept, as those at the limit are, up to rounding.
    """
    down, up = ((1 + 1e-6) * math.log(least) ** 2 for least in (least_low, least_high))
    return torch.where(log_rho_BT > 0, limit.clamp(min=up), limit.clamp(min=down))


def breakpoint_keep(
    logp_BT: Tensor, batch: Batch, *, tau: float = 0.04, least_low: float = 1.0, least_high: float = 1.0
) -> Tensor:
    """Return the tokens that the released code's global bounds do not clip."""
    limit = BREAKPOINT(logp_BT, batch, tau=tau)[..., None, None]
    log_rho_BT = log_token(logp_BT.detach(), batch)
    limit_BT = squared_reach(log_rho_BT, limit, least_low, least_high)
    return ~harmful(log_rho_BT, batch) | (log_rho_BT.square() <= limit_BT)


@objective.variant(
    "m2po@author", source="Infini-AI-Lab/M2PO af54a3e8 2025-10-08, verl/trainer/ppo/core_algos.py",
    detached=True, statistic=BREAKPOINT, keep=breakpoint_keep,
)  # fmt: skip
def m2po_author(
    logp_BT: Tensor, batch: Batch, *, tau: float = 0.04, least_low: float = 1.0, least_high: float = 1.0
) -> Tensor:
    """L = -min(rho A, clip(rho, e^-t, e^t) A), t^2 the last (log rho)^2 within a winsorized budget.

    rho = pi/mu. Excess tokens still count, at the cap, in sum min((log rho)^2, t^2) = tau n, and t is then
    rounded down to a token's value: it clips more than the paper drops. t and the loss of a clipped token
    have no gradient. The token at the bound is kept here; in the released code rounding decides. That code
    also solves per micro-batch, uses the sign of each sequence's first advantage, and within budget still
    clips above rho = 1e5. least_low and least_high: the bounds are min(e^-t, least_low) and max(e^t,
    least_high); its trainer leaves these floors off.
    """
    limit = BREAKPOINT(logp_BT, batch, tau=tau)[..., None, None]
    log_rho_BT = log_token(logp_BT, batch)
    limit_BT = squared_reach(log_rho_BT.detach(), limit, least_low, least_high)
    move_BT = harmful(log_rho_BT, batch)
    keep_BT = (~move_BT | (log_rho_BT.detach().square() <= limit_BT)) & (batch.adv_BT != 0)
    bound_BT = torch.where(move_BT & ~keep_BT, limit_BT.sqrt() * log_rho_BT.detach().sign(), 0.0)
    return -torch.where(keep_BT, log_rho_BT, bound_BT.to(log_rho_BT.dtype)).exp() * batch.adv_BT


def mismatch_squares(logp_BT: Tensor, batch: Batch, **_: float) -> Tensor:  # noqa: ARG001
    """Return (log anchor/mu)^2 of every token and infinity outside the mask; [..., 1, B T]."""
    square_BT = log_mismatch(batch).square().masked_fill(~batch.mask_BT, torch.inf)
    return square_BT.flatten(-2).unsqueeze(-2)


def largest_below(square_1K: Tensor, *, tau: float = 0.04, **_: float) -> Tensor:
    """Return the largest square of the longest sorted prefix with mean < tau, else the smallest; [...]."""
    ordered_K = square_1K.squeeze(-2).sort(-1).values
    rank_K = torch.arange(1, ordered_K.shape[-1] + 1, device=ordered_K.device)
    fits_K = ordered_K.cumsum(-1) / rank_K < tau
    return torch.where(fits_K, ordered_K, ordered_K[..., :1]).max(-1).values


MISMATCH = BatchStatistic(mismatch_squares, largest_below)


def mismatch_keep(logp_BT: Tensor, batch: Batch, *, tau: float = 0.04, cap: float = 5.0) -> Tensor:
    """Return the tokens with anchor/mu within the second-moment budget and at most `cap`."""
    log_d_BT = log_mismatch(batch)
    limit = MISMATCH(logp_BT, batch, tau=tau)[..., None, None]
    return (log_d_BT.square() <= limit) & (log_d_BT <= math.log(cap))


@objective.variant(
    "m2po@areal",
    source="inclusionAI/AReaL 4aef98d8 2026-05-21, areal/trainer/ppo/actor.py, examples/math/gsm8k_m2po.yaml",
    reads=("mu", "anchor", "adv"), statistic=MISMATCH, keep=mismatch_keep,
)  # fmt: skip
def m2po_areal(
    logp_BT: Tensor, batch: Batch, *, tau: float = 0.04, cap: float = 5.0, eps: float = 0.0
) -> Tensor:
    """L = -M d min(u A, clip(u, 1 - eps, 1 + eps) A), d = anchor/mu detached, u = pi/anchor, M by (log d)^2.

    M drops the largest (log d)^2 of all tokens, harmful or not, until the mean of the rest is < tau (at least
    one token stays), and tokens with d > cap. So it masks engine mismatch and leaves the update to PPO's
    clip, at eps = 0: a token stops as soon as it moves with its advantage. In AReaL dropped tokens also leave
    the denominator.
    """
    keep_BT = mismatch_keep(logp_BT, batch, tau=tau, cap=cap)
    log_d_BT, log_u_BT = log_mismatch(batch), log_token(logp_BT, batch, base="anchor")
    log_d_BT, log_u_BT = (torch.where(keep_BT, x, torch.zeros_like(x)) for x in (log_d_BT, log_u_BT))
    clipped_BT = one_sided_clip(log_u_BT, batch.adv_BT, 1 - eps, 1 + eps, log_weight=log_d_BT)
    return -clipped_BT * batch.adv_BT * keep_BT
