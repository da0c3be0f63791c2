"""DRO: fit reward minus value by the log-ratio to a reference, one response at a time."""

from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.aggregate import spread
from testbed.losses.ratios import log_token, sequence_advantage
from testbed.objectives import objective


@objective(
    "dro",
    source="Richemond et al. (2024), arXiv:2405.19107",
    ratio="sequence",
    reads=("ref", "adv"),
    scope="sequence",
    sign=False,
    penalty=True,
)
def dro(logp_BT: Tensor, batch: Batch, *, tau: float = 1.0) -> Tensor:
    """L = (1/T) (A - tau log W)^2 / 2, W = prod_t pi/ref and A = R - V(prompt), V a learned value.

    Half of A*-PO's loss with tau for beta2; only the value differs. Its gradient is tau times that of -A log
    pi + tau (log W)^2 / 2. Spread evenly over the T tokens; aggregate with constant, length 1. Taken from the
    literature that builds on it, which names no tau; 1 is ours.
    """
    log_w_B1 = log_token(logp_BT, batch, base="ref").sum(-1, keepdim=True)
    return spread((sequence_advantage(batch) - tau * log_w_B1).square() / 2, batch.mask_BT)


def _token_penalty(log_ratio_BT: Tensor, logp_BT: Tensor, batch: Batch, beta: float) -> Tensor:
    return -batch.adv_BT * logp_BT + beta / 2 * log_ratio_BT.square()


@objective.variant(
    "dro@verl",
    source="verl-project/verl 1dda039b 2026-08-22, policy loss 'dro'",
    ratio="token",
    reads=("anchor", "adv"),
    scope="token",
)
def dro_verl(logp_BT: Tensor, batch: Batch, *, beta: float = 0.1) -> Tensor:
    """L = -A log pi + beta/2 (log u)^2, u = pi/anchor.

    The paper's anchor is a fixed reference and it squares the sequence's log-ratio. Here each token's
    log-ratio is squared, to the policy at the start of the update, so the cross terms between tokens are
    missing. verl has no default and asks for beta > 0 (its docs/algo/dro.md; pull request 7245 shows 0.05);
    0.1 is a port's.
    """
    return _token_penalty(log_token(logp_BT, batch, base="anchor"), logp_BT, batch, beta)


@objective.variant(
    "dro@tinker",
    source="thinking-machines-lab/tinker-cookbook 9dfcc3a2 2026-08-19; Tinker documentation, losses, DRO",
    ratio="token",
    reads=("mu", "adv"),
    scope="token",
)
def dro_tinker(logp_BT: Tensor, batch: Batch, *, beta: float = 0.05) -> Tensor:
    """L = -A log pi + beta/2 (log rho)^2, rho = pi/mu.

    As in verl, but to the sampler, token by token: a pull toward the policy that produced the tokens. The
    documentation gives no default for beta; 0.05 is ours.
    """
    return _token_penalty(log_token(logp_BT, batch), logp_BT, batch, beta)
