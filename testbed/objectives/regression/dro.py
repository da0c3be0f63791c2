"""DRO: fit reward minus value by the log-ratio to a reference, one response at a time."""

from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.aggregate import spread
from testbed.losses.ratios import Base, log_token, sequence_advantage
from testbed.objectives import objective


@objective(
    "dro", source="Richemond et al. (2024), arXiv:2405.19107", ratio="sequence", reads=("ref", "adv"),
    scope="sequence", sign=False, penalty=True,
)  # fmt: skip
def dro(logp_BT: Tensor, batch: Batch, *, tau: float = 1.0) -> Tensor:
    """L = (1/T) (A - tau log W)^2 / 2, W = prod_t pi/ref and A = R - V(prompt), V a learned value.

    Half of A*-PO's loss with tau for beta2; only the value differs. Its gradient is tau times that of -A log
    pi + tau (log W)^2 / 2. Spread evenly over the T tokens; aggregate with constant, length 1. Taken from the
    literature that builds on it, which names no tau; 1 is ours.
    """
    log_w_B1 = log_token(logp_BT, batch, base="ref").sum(-1, keepdim=True)
    return spread((sequence_advantage(batch) - tau * log_w_B1).square() / 2, batch.mask_BT)


def token_penalty(logp_BT: Tensor, batch: Batch, *, base: Base, beta: float) -> Tensor:
    """Return -A log pi + beta/2 (log r)^2, r the token ratio to a base."""
    return -batch.adv_BT * logp_BT + beta / 2 * log_token(logp_BT, batch, base).square()
