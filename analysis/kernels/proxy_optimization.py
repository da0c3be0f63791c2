"""The best occupancy for a proxy reward within a divergence from a base policy, in a finite MDP."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import optimize

from analysis.kernels.on_use import Tensor, torch
from envs.arrays import Floats
from envs.finite_mdp import FiniteMDP
from testbed.errors import UserError, unknown

DIVERGENCES = ("occupancy chi2", "action chi2", "action KL")


def _occupancy(world: FiniteMDP, pi_SA: Tensor) -> Tensor:
    """(1 - discount) sum_t discount^t P(s_t, a_t), [S, A]."""
    step_SS = torch.einsum("sa,sat->st", pi_SA, torch.from_numpy(world.transition_SAS.copy()))
    start_S = torch.from_numpy(world.start_S.copy())
    matrix_SS = torch.eye(world.states, dtype=torch.float64) - world.discount * step_SS.T
    return (1 - world.discount) * torch.linalg.solve(matrix_SS, start_S)[:, None] * pi_SA


def divergence(world: FiniteMDP, pi_SA: Tensor, base_SA: Tensor, kind: str) -> Tensor:
    """Square root of chi2(d_pi || d_base), or of the mean over d_pi of chi2(pi || base), or the mean KL.

    Source: Laidlaw et al. (2024), Correlated proxies, arXiv:2403.03185: ORPO's penalty is the first.
    """
    d_SA = _occupancy(world, pi_SA)
    # The clamp has slope 0 where the search starts, at pi = base; the root alone has an infinite one.
    if kind == "occupancy chi2":
        return ((d_SA**2 / _occupancy(world, base_SA)).sum() - 1).clamp(min=1e-12).sqrt()
    if kind == "action chi2":
        return ((d_SA * pi_SA / base_SA).sum() - 1).clamp(min=1e-12).sqrt()
    if kind == "action KL":
        return (d_SA * (pi_SA.log() - base_SA.log())).sum()
    raise unknown("divergence", kind, DIVERGENCES)


def optimized(
    world: FiniteMDP, proxy_SA: Floats, base_SA: Floats, kind: str, strengths: Sequence[float]
) -> list[Floats]:
    """argmax_pi E_d[proxy] - strength * divergence, for each strength, strongest first, each started at the
    last result.

    L-BFGS on logits with exact gradients; the first starts at the base. Raises UserError for a base that
    omits an action, terminal states, or discount 1.
    """
    if not (base_SA > 0).all():
        raise UserError(
            "The base policy gives an action probability 0, so chi2 is infinite. Mix in the uniform "
            "distribution."
        )
    if world.tables.terminal_S.any() or world.discount >= 1:
        raise UserError("Occupancies need discount < 1 and no terminal states here.")
    proxy, base = torch.from_numpy(np.array(proxy_SA)), torch.from_numpy(np.array(base_SA))
    logit_X, found = np.log(base_SA).ravel(), []
    for strength in sorted(strengths, reverse=True):

        def loss(x_X: Floats, strength: float = strength) -> tuple[float, Floats]:
            theta = torch.tensor(x_X.reshape(base_SA.shape), requires_grad=True)
            pi_SA = theta.log_softmax(-1).exp()
            gain = (_occupancy(world, pi_SA) * proxy).sum()
            value = strength * divergence(world, pi_SA, base, kind) - gain
            value.backward()
            assert theta.grad is not None
            return float(value.detach()), theta.grad.numpy().ravel()

        # Under a strong penalty the best policy is near the base; weaker ones follow it from there.
        logit_X = optimize.minimize(loss, logit_X, jac=True, method="L-BFGS-B", options={"maxiter": 120}).x
        found.append(torch.from_numpy(logit_X.reshape(base_SA.shape)).softmax(-1).numpy())
    return found


def distance(world: FiniteMDP, pi_SA: Floats, base_SA: Floats, kind: str) -> float:
    """`divergence` of two tables as a number."""
    return float(
        divergence(world, torch.from_numpy(np.array(pi_SA)), torch.from_numpy(np.array(base_SA)), kind)
    )


def penalized_reward(proxy_SA: Floats, occupancy_SA: Floats, base_SA: Floats, strength: float) -> Floats:
    """proxy - strength ratio / sqrt(chi2), ratio = d / d_base, chi2 = E_d[ratio] - 1: ORPO's reward, [S, A].

    With the reward held fixed, its policy gradient is that of E_d[proxy] - strength sqrt(chi2): d sqrt(chi2)
    = (ratio dd) / sqrt(chi2). A discriminator, with optimum log ratio, may estimate the occupancies. Source:
    Laidlaw et al. (2024), arXiv:2403.03185, section 6.
    """
    ratio_SA = occupancy_SA / base_SA
    root = np.sqrt(max(float((occupancy_SA * ratio_SA).sum()) - 1, 1e-12))
    return np.asarray(proxy_SA - strength * ratio_SA / root)
