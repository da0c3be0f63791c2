"""KL penalties toward a reference, the anchor or the behavior policy, with every detach choice."""

import math
from typing import Any

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.ratios import Base, log_token
from testbed.objectives import objective
from testbed.objectives.terms.kl_estimators import kl_term


@objective(
    "kl_penalty",
    source="Shao et al. (2024), arXiv:2402.03300, Eq. 4; estimators: Schulman (2020), "
    "joschu.net/blog/kl-approx.html; gradients: Tang & Munos (2025), arXiv:2506.09477",
    reads=("ref",),
    on_policy=None,
)
def kl_penalty(
    logp_BT: Tensor,
    batch: Batch,
    *,
    estimator: str = "k3",
    direction: str = "reverse",
    base: Base = "ref",
    gradient: str = "pathwise",
) -> Tensor:
    """L = k3 = ref/pi - 1 - log(ref/pi), or k1 = log(pi/ref), or k2 = log(pi/ref)^2 / 2, or abs of k1.

    On samples of pi, with x = log(pi/base), the expected gradients are: 0 for pathwise k1; that of KL(pi ||
    base) for pathwise k2, score k1 ("KL in the reward"), and "both" with k1 or k3; that of KL(base || pi) for
    pathwise k3 (GRPO's); the difference of the two for score k3. direction "forward" estimates KL(base || pi)
    by importance weights base/pi; there only "both" with k1 or k3 gives its gradient. abs (verl, Trinity-RFT)
    has the gradient of no KL: a pull of constant size. base: ref, anchor or mu. With "score" and "both" the
    loss's value is not a KL.
    """
    return kl_term(logp_BT, batch, estimator=estimator, direction=direction, base=base, gradient=gradient)


def clamped_k3(logp_BT: Tensor, batch: Batch, *, input_clamp: float, output_clamp: float) -> Tensor:
    """Return k3 of x = log(pi/ref), both clamped; no gradient beyond either bound."""
    cut_BT = log_token(logp_BT, batch, "ref").clamp(-input_clamp, input_clamp)
    return (torch.expm1(-cut_BT) + cut_BT).clamp(max=output_clamp)


@objective.variant(
    "kl_penalty@nemo-rl",
    source="NVIDIA-NeMo/RL 7ea279ab 2026-08-22, nemo_rl/algorithms/loss/loss_functions.py",
    detached=True,
)
def kl_penalty_nemo_rl(
    logp_BT: Tensor, batch: Batch, *, input_clamp: float = 20.0, output_clamp: float = 10.0
) -> Tensor:
    """L = sg[x] log pi, x = log(pi/ref), for tokens with k3 <= output_clamp and |x| <= input_clamp, else 0.

    The gradient of k3 times exp(log pi - sg[log pi]): NeMo-RL adds the score-function gradient, so its
    expectation is that of KL(pi || ref), not of KL(ref || pi) as in verl and TRL's older form.
    """
    x_BT = log_token(logp_BT.detach(), batch, "ref")
    free_BT = (x_BT.abs() <= input_clamp) & (torch.expm1(-x_BT) + x_BT <= output_clamp)
    return torch.where(free_BT, x_BT, torch.zeros_like(x_BT)) * logp_BT


class _WithSlope(torch.autograd.Function):
    """A value with a given derivative; automatic differentiation would subtract infinities."""

    @staticmethod
    def forward(ctx: Any, _logp_BT: Tensor, value_BT: Tensor, slope_BT: Tensor) -> Tensor:
        ctx.save_for_backward(slope_BT)
        return value_BT.clone()

    @staticmethod
    def backward(ctx: Any, grad_BT: Tensor) -> tuple[Tensor, None, None]:
        return grad_BT * ctx.saved_tensors[0], None, None


def weighted_k3(logp_BT: Tensor, batch: Batch, *, base: Base, cap: float = math.inf) -> Tensor:
    """Return min(rho, cap) k3, rho = pi/base, k3 of x = log(pi/ref).

    Its slope in log pi is rho x, and beyond the cap, where only k3 moves, cap (1 - e^-x).
    """
    x_BT = log_token(logp_BT.detach(), batch, "ref")
    # At pi = ref both are 0, for any rho.
    log_rho_BT = torch.where(x_BT != 0, log_token(logp_BT.detach(), batch, base), torch.zeros_like(x_BT))
    below_BT, above_BT = x_BT.clamp(max=0), x_BT.clamp(min=0)
    # Below 0, k3 is e^-x (e^x k3): rho may vanish and e^-x overflow while their product does neither.
    share_BT = below_BT * below_BT.exp() - torch.expm1(below_BT) + torch.expm1(-above_BT) + above_BT
    value_BT = (log_rho_BT.clamp(max=math.log(cap)) - below_BT).exp() * share_BT
    slope_BT = log_rho_BT.exp() * x_BT
    if cap < math.inf:
        slope_BT = torch.where(log_rho_BT > math.log(cap), -cap * torch.expm1(-x_BT), slope_BT)
    weighted_BT: Tensor = _WithSlope.apply(  # type: ignore[no-untyped-call]
        logp_BT.to(x_BT.dtype), value_BT, slope_BT
    )
    return weighted_BT
