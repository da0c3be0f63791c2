"""Distillation by any f-divergence, from one sampled token per position, on tokens of any policy."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import softplus

from testbed.data.batch import EXPERT, Batch
from testbed.errors import UserError, unknown
from testbed.losses.ratios import log_token
from testbed.objectives import objective


def _mixture(log_r: Tensor, beta: float) -> Tensor:
    """log(beta r + 1 - beta), finite where r is not."""
    return math.log(1 - beta) + softplus(log_r + math.log(beta / (1 - beta)))


SLOPES: dict[str, Callable[[Tensor, float], Tensor]] = {
    "reverse": lambda log_r, _: -log_r,
    "forward": lambda log_r, _: -log_r.exp(),
    "js": lambda log_r, beta: -(1 - beta) * _mixture(log_r, beta),
    "tv": lambda log_r, _: -torch.sign(log_r) / 2,
}
"""f(r) - r f'(r) of r = ref/pi and beta, up to a constant."""


@objective(
    "f_distillation",
    source="Agarwal et al. (2024), GKD, arXiv:2306.13649; f: Nowozin et al. (2016), arXiv:1606.00709",
    reads=("mu", "ref", "origin"), on_policy=None, detached=True,
)  # fmt: skip
def f_distillation(
    logp_BT: Tensor, batch: Batch, *, divergence: str = "reverse", beta: float = 0.5
) -> Tensor:
    """L = sg[W (f(r) - r f'(r))] log pi, r = ref/pi with ref the teacher, W = pi over the token's sampler.

    In expectation over a token this is the gradient of D_f = E_pi f(r) at its position, for any sampler: an
    expert's token comes from the teacher, W = pi/ref; any other from mu, W = pi/mu. divergence: "reverse"
    KL(pi || ref), f = -log r; "forward" KL(ref || pi), f = r log r, for which an expert's token weighs -1,
    that is SFT; "js" beta KL(ref || m) + (1 - beta) KL(pi || m), m = beta ref + (1 - beta) pi; "tv" half the
    sum of |pi - ref|. No gradient goes through the distribution of earlier tokens. On pi's tokens "forward"
    adds a constant 1, which changes no expectation and gives equal policies weight 0.
    """
    if divergence not in SLOPES:
        raise unknown("divergence", divergence, SLOPES)
    if not 0 < beta < 1:
        raise UserError(
            f"beta is {beta:g}, the teacher's share of the mixture; expected above 0 and below 1."
        )
    log_r_BT = -log_token(logp_BT.detach(), batch, "ref")
    slope_BT = SLOPES[divergence](log_r_BT, beta)
    own_BT = slope_BT + (1.0 if divergence == "forward" else 0.0)
    log_rho_BT = log_token(logp_BT.detach(), batch)
    # Slope 0 means loss 0, even where pi/mu overflows.
    weight_BT = torch.where(own_BT != 0, log_rho_BT, torch.zeros_like(log_rho_BT)).exp() * own_BT
    if batch.origin_B is not None:
        expert_B1 = (batch.origin_B == EXPERT).unsqueeze(-1)
        theirs_BT = -torch.ones_like(slope_BT) if divergence == "forward" else (-log_r_BT).exp() * slope_BT
        weight_BT = torch.where(expert_B1, theirs_BT, weight_BT)
    return torch.where(batch.mask_BT, weight_BT, torch.zeros_like(weight_BT)) * logp_BT
