"""Multi-step evaluation operators of a discounted MDP as affine maps: Jacobian, fixed point, contraction.

Infinite horizon: `world.horizon` is ignored, the discount must be below 1, and terminal states are worth 0.
"""

from dataclasses import dataclass

import numpy as np

from envs.arrays import Bools, Floats
from envs.finite_mdp import FiniteMDP
from testbed.errors import UserError


@dataclass(frozen=True)
class AffineOperator:
    """x -> jacobian x + offset, on X values."""

    jacobian_XX: Floats
    offset_X: Floats

    def __call__(self, value_X: Floats) -> Floats:
        """Apply the operator once."""
        return self.jacobian_XX @ value_X + self.offset_X

    def fixed_point(self) -> Floats:
        """x = (I - jacobian)^-1 offset, [X]."""
        return _solve(np.eye(len(self.offset_X)) - self.jacobian_XX, self.offset_X)

    @property
    def sup_norm(self) -> float:
        """Contraction factor in the maximum norm: the largest absolute row sum of the Jacobian."""
        return float(np.abs(self.jacobian_XX).sum(axis=-1).max())


def vtrace_policy(pi_SA: Floats, mu_SA: Floats, rho_bar: float) -> Floats:
    """V-trace's policy (Espeholt et al. 2018): min(rho_bar mu, pi), normalized per state, [S, A]."""
    _check_support(pi_SA, mu_SA, rho_bar)
    # An infinite bound times mu = 0 would be NaN.
    mass_SA = np.minimum(rho_bar * mu_SA, pi_SA) if np.isfinite(rho_bar) else pi_SA
    return mass_SA / mass_SA.sum(axis=-1, keepdims=True)


def vtrace(
    world: FiniteMDP,
    pi_SA: Floats,
    mu_SA: Floats,
    *,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    lam: float = 1.0,
) -> AffineOperator:
    """V + E_mu sum_t discount^t c_0 ... c_{t-1} min(rho_bar, rho_t) delta_t, on [S]; c = lam min(c_bar, rho).

    Its fixed point is the value of `vtrace_policy`, for any c_bar and lam. Terminal states map to 0.
    """
    _check_support(pi_SA, mu_SA, rho_bar)
    rho_SA = np.where(mu_SA > 0, pi_SA / np.where(mu_SA > 0, mu_SA, 1.0), 0.0)
    live_S = (~world.tables.terminal_S).astype(float)
    weight_SA = mu_SA * np.minimum(rho_bar, rho_SA) * live_S[:, None]
    trace_SA = mu_SA * lam * np.minimum(c_bar, rho_SA) * live_S[:, None]
    moves_SAS = _live_moves(world)
    step_SS = np.einsum("sa,sat->st", weight_SA, moves_SAS)
    discount = _discount(world)
    solver_SS = np.eye(world.states) - discount * np.einsum("sa,sat->st", trace_SA, moves_SAS)
    # delta_t = reward + discount V(s') - V(s); its mean given s is weighted by the clipped ratio.
    delta_SS = discount * step_SS - np.diag(weight_SA.sum(axis=-1))
    jacobian_SS = np.diag(live_S) + _solve(solver_SS, delta_SS)
    offset_S = _solve(solver_SS, (weight_SA * world.mean_reward_SA).sum(axis=-1))
    return AffineOperator(jacobian_SS, offset_S)


def vtrace_contraction_bound(pi_SA: Floats, mu_SA: Floats, rho_bar: float, discount: float) -> float:
    """1 - (1 - discount) min_s E_mu min(rho_bar, rho), for c_bar <= rho_bar (Espeholt et al. 2018, thm 1)."""
    mass_S = np.minimum(rho_bar * mu_SA, pi_SA).sum(axis=-1) if np.isfinite(rho_bar) else pi_SA.sum(axis=-1)
    return float(1.0 - (1.0 - discount) * mass_S.min())


def retrace(world: FiniteMDP, pi_SA: Floats, mu_SA: Floats, *, lam: float = 1.0) -> AffineOperator:
    """Q + (I - discount P_{c mu})^-1 (r + discount P_pi Q - Q), c = lam min(1, rho), on [S A].

    The fixed point is Q^pi for every mu; the Jacobian is nonnegative with sup norm <= discount.
    Source: Munos et al. (2016), theorem 1.
    """
    discount, pairs = _discount(world), world.states * world.actions
    moves_XS = _live_moves(world).reshape(pairs, world.states)
    live_X = np.repeat(~world.tables.terminal_S, world.actions)
    trace_SA = lam * np.minimum(mu_SA, pi_SA)
    trace_XX = (moves_XS[..., None] * trace_SA).reshape(pairs, pairs)
    target_XX = (moves_XS[..., None] * pi_SA).reshape(pairs, pairs)
    solver_XX = np.eye(pairs) - discount * trace_XX
    # I + solver^-1 (discount target - I), in which the two identities cancel.
    jacobian_XX = _solve(solver_XX, discount * (target_XX - trace_XX))
    return AffineOperator(jacobian_XX, _solve(solver_XX, world.mean_reward_SA.ravel() * live_X))


def fitted_q(
    joint_SAS: Floats, reward_SA: Floats, pi_SA: Floats, discount: float, terminal_S: Bools | None = None
) -> AffineOperator:
    """One tabular FQE regression on [S A]: each pair's mean of r + discount sum_a' pi(a'|s') Q(s', a').

    joint_SAS: distribution or counts of (s, a, s'); reward_SA: mean reward of the pair. A pair without data
    keeps 0. The fixed point is the certainty-equivalent value, the same as LSTD-Q's.
    """
    states, actions = pi_SA.shape
    count_SA1 = joint_SAS.sum(axis=-1, keepdims=True)
    seen_SA1 = np.where(count_SA1 > 0, count_SA1, 1.0)
    live_S = np.ones(states) if terminal_S is None else 1.0 - np.asarray(terminal_S, dtype=float)
    next_XS = (joint_SAS / seen_SA1 * live_S).reshape(-1, states)
    jacobian_XX = discount * (next_XS[..., None] * pi_SA).reshape(states * actions, -1)
    return AffineOperator(jacobian_XX, np.where(count_SA1[..., 0] > 0, reward_SA, 0.0).ravel())


def _check_support(pi_SA: Floats, mu_SA: Floats, rho_bar: float) -> None:
    """Raise UserError if mu shares no action with pi, or misses one while ratios are not clipped."""
    shared_SA = (pi_SA > 0) & (mu_SA > 0)
    bad_S = ~shared_SA.any(axis=-1) if np.isfinite(rho_bar) else ((pi_SA > 0) & ~shared_SA).any(axis=-1)
    if bad_S.any() or not rho_bar > 0:
        raise UserError(
            f"rho_bar is {rho_bar:g}; mu must take some action of pi everywhere, and all of them for an "
            f"infinite rho_bar (states where it does not: {np.flatnonzero(bad_S).tolist()}). Give it mass."
        )


def _live_moves(world: FiniteMDP) -> Floats:
    """P(s' | s, a) without transitions from or to a terminal state, [S, A, S]."""
    live_S = ~world.tables.terminal_S
    return world.transition_SAS * live_S * live_S[:, None, None]


def _solve(matrix_XX: Floats, right_xX: Floats) -> Floats:
    return np.asarray(np.linalg.solve(matrix_XX, right_xX), dtype=np.float64)


def _discount(world: FiniteMDP) -> float:
    if world.discount >= 1.0:
        raise UserError(
            f"discount is {world.discount:g}, expected less than 1 for an operator without horizon."
        )
    return world.discount
