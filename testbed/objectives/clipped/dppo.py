"""DPPO: mask tokens by the change of their probability, not by its ratio."""

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.ratios import Base, log_token
from testbed.losses.score_loss import score_loss
from testbed.objectives import objective


def within_total_variation(
    logp_BT: Tensor, batch: Batch, *, d_low: float = 0.2, d_high: float = 0.2, base: Base = "mu"
) -> Tensor:
    """Return the tokens to keep: not A > 0 with pi - mu > d_high, nor A <= 0 with mu - pi > d_low."""
    other_BT = batch.require(f"logp_{base}_BT", f"a probability under '{base}'")
    dtype = torch.promote_types(logp_BT.dtype, torch.float32)
    moved_BT = logp_BT.detach().to(dtype).exp() - other_BT.to(dtype).exp()
    return ~torch.where(batch.adv_BT > 0, moved_BT > d_high, -moved_BT > d_low)


def _against_anchor(logp_BT: Tensor, batch: Batch, *, d_low: float = 0.2, d_high: float = 0.2) -> Tensor:
    return within_total_variation(logp_BT, batch, d_low=d_low, d_high=d_high, base="anchor")


@objective(
    "dppo_tv", source="Qi et al. (2026), arXiv:2602.04879 (DPPO-Binary-TV)", reads=("mu", "adv"),
    max_weight="cap", detached=True, keep=within_total_variation,
)  # fmt: skip
def dppo_tv(
    logp_BT: Tensor, batch: Batch, *, d_low: float = 0.2, d_high: float = 0.2, cap: float = 20.0
) -> Tensor:
    """L = -sg[min(rho, cap) M] A log pi, M = 0 where A > 0, pi - mu > d_high or A < 0, mu - pi > d_low.

    rho = pi/mu. |pi(y) - mu(y)| is the total variation when all other tokens are merged into one, so a rare
    token may change its ratio freely but a likely one may not. The paper's thresholds and cap could not be
    verified: 0.2 is prime-rl's and verl's, 20 is verl's fallback.
    """
    weight_BT = log_token(logp_BT, batch).exp().clamp(max=cap)
    keep_BT = within_total_variation(logp_BT, batch, d_low=d_low, d_high=d_high)
    return score_loss(weight_BT * keep_BT, logp_BT, batch)


@objective.variant(
    "dppo_tv@verl",
    source="verl-project/verl 1dda039b 2026-08-22, verl/trainer/ppo/core_algos.py (dppo_tv)",
    reads=("anchor", "adv"),
    keep=_against_anchor,
)
def dppo_tv_verl(
    logp_BT: Tensor,
    batch: Batch,
    *,
    d_low: float = 0.2,
    d_high: float = 0.2,
    cap: float = 3.0,
    log_clamp: float = 20.0,
) -> Tensor:
    """L = dppo_tv with anchor for mu, cap = 3 and log(pi/anchor) clamped to +-20.

    A stock configuration caps the ratio at 3 (20 is only the fallback), so rare tokens lose weight sooner.
    Engine mismatch is visible only if mu is passed as the anchor.
    """
    log_u_BT = log_token(logp_BT, batch, base="anchor").clamp(-log_clamp, log_clamp)
    keep_BT = _against_anchor(logp_BT, batch, d_low=d_low, d_high=d_high)
    return score_loss(log_u_BT.exp().clamp(max=cap) * keep_BT, logp_BT, batch)


@objective.variant(
    "dppo_tv@prime-rl",
    source="PrimeIntellect-ai/prime-rl 559b4477 2026-08-21, src/prime_rl/trainer/rl/loss.py",
    detached=False, max_weight=None, sign=False, penalty=True, keep=None,
)  # fmt: skip
def dppo_tv_prime_rl(
    logp_BT: Tensor,
    batch: Batch,
    *,
    d_low: float = 0.2,
    d_high: float = 0.2,
    kl_tau: float = 1e-3,
    adv_tau: float = 1.0,
) -> Tensor:
    """L = -M rho adv_tau A + kl_tau (log rho)^2, M as in dppo_tv, rho = pi/mu.

    It sets no cap on rho. The term in (log rho)^2 pulls toward mu, also for masked tokens and A = 0, with
    weight -2 kl_tau log rho. adv_tau, called a temperature there, scales the advantage (default 1): beside
    learning rate and kl_tau it is redundant, and 0 leaves only the pull.
    """
    log_rho_BT = log_token(logp_BT, batch)
    inside_BT = within_total_variation(logp_BT, batch, d_low=d_low, d_high=d_high)
    # Tokens without a weight skip exp: an overflowing ratio times 0 would be NaN.
    keep_BT = inside_BT & (adv_tau * batch.adv_BT != 0)
    rho_BT = torch.where(keep_BT, log_rho_BT, torch.zeros_like(log_rho_BT)).exp()
    return -rho_BT * adv_tau * batch.adv_BT * keep_BT + kl_tau * log_rho_BT.square()
