"""Exact linear TD, target networks, expectiles, GAE's bias, the emphatic gradient and the proxy bound."""

from dataclasses import dataclass

import numpy as np

from envs import infinite_horizon
from envs.arrays import Floats
from envs.finite_mdp import FiniteMDP
from testbed.errors import UserError

RANK = 1e-10
"""Singular values of the features below this share of the largest count as 0."""


@dataclass(frozen=True)
class LinearTD:
    """A1 = Phi^T D Phi and A2 = discount Phi^T D P Phi on the row space of Phi, [F, F].

    Omits directions in which the features do not change the values: nothing is learned along them.
    """

    covariance_FF: Floats
    bootstrap_FF: Floats

    def td_abscissa(self) -> float:
        """max Re eig(A2 - A1): expected TD is stable for a small step size iff it is negative."""
        return float(np.linalg.eigvals(self.bootstrap_FF - self.covariance_FF).real.max())

    def td_radius(self, step_size: float) -> float:
        """Spectral radius of I + step_size (A2 - A1), one expected TD update."""
        return _radius(np.eye(len(self.covariance_FF)) + step_size * (self.bootstrap_FF - self.covariance_FF))

    def fitted_radius(self) -> float:
        """Spectral radius of A1^-1 A2: FQE, or target refresh after convergence, converges iff < 1."""
        return _radius(np.asarray(np.linalg.solve(self.covariance_FF, self.bootstrap_FF), dtype=np.float64))

    def target_radius(self, step_size: float, inner: int) -> float:
        """Spectral radius of J_k: one refresh of the target network converges iff < 1."""
        identity_FF = np.eye(len(self.covariance_FF))
        kept_FF = np.linalg.matrix_power(identity_FF - step_size * self.covariance_FF, inner)
        fitted_FF = np.linalg.solve(self.covariance_FF, self.bootstrap_FF)
        return _radius(np.asarray(kept_FF + (identity_FF - kept_FF) @ fitted_FF))


def linear_td(feature_SF: Floats, weight_S: Floats, step_SS: Floats, discount: float) -> LinearTD:
    """The expected update of linear TD with state weights weight_S and transitions step_SS of the target."""
    _, size_F, basis_FF = np.linalg.svd(feature_SF, full_matrices=False)
    phi_SF = feature_SF @ basis_FF[size_F > RANK * size_F[0]].T
    weighted_FS = phi_SF.T * weight_S
    return LinearTD(weighted_FS @ phi_SF, discount * weighted_FS @ step_SS @ phi_SF)


def baird_star(discount: float) -> LinearTD:
    """Baird's star: 7 states, phi(s < 6) = 2 e_s + e_7, phi(6) = e_6 + 2 e_7, always to state 6 (1995)."""
    feature_SF = np.zeros((7, 8))
    feature_SF[range(6), range(6)], feature_SF[:6, 7] = 2.0, 1.0
    feature_SF[6, 6:] = 1.0, 2.0
    return linear_td(feature_SF, np.full(7, 1 / 7), np.eye(7)[[6] * 7], discount)


def two_state(discount: float) -> LinearTD:
    """w -> 2w: features 1 and 2, all weight on the first state, which leads to the second."""
    next_SS = np.array([[0.0, 1.0], [0.0, 1.0]])
    return linear_td(np.array([[1.0], [2.0]]), np.array([1.0, 0.0]), next_SS, discount)


def expectile(value_K: Floats, mass_K: Floats, tau: float) -> float:
    """m with tau E(X - m)+ = (1 - tau) E(m - X)+ for a distribution on K values; tau = 1/2 is the mean.

    Between two values the equation is linear in m, so the answer is exact. Source: Newey & Powell (1987).
    """
    if not 0.0 < tau < 1.0:
        raise UserError(f"tau is {tau:g}, expected 0 < tau < 1.")
    order_K = np.argsort(value_K)
    x_K, p_K = value_K[order_K], mass_K[order_K]
    # Root of the piece with the first k values at or below m. Left minus right side falls in m, piecewise
    # linear, convex for tau >= 1/2, else concave: its root is the largest, or smallest, root of a piece.
    low_K, low_sum_K = np.cumsum(p_K), np.cumsum(p_K * x_K)
    high_K, high_sum_K = low_K[-1] - low_K, low_sum_K[-1] - low_sum_K
    mean_K = (tau * high_sum_K + (1 - tau) * low_sum_K) / (tau * high_K + (1 - tau) * low_K)
    return float(mean_K.max() if tau >= 0.5 else mean_K.min())


def expected_gae(world: FiniteMDP, pi_SA: Floats, v_hat_S: Floats, lam: float) -> Floats:
    """E[sum_l (discount lam)^l delta_{t+l} | s, a] under pi, [S, A], for a world without terminal states."""
    _endless(world)
    discount = world.discount
    reward_S = (pi_SA * world.mean_reward_SA).sum(axis=-1)
    step_SS = np.einsum("sa,sat->st", pi_SA, world.transition_SAS)
    delta_S = reward_S + discount * step_SS @ v_hat_S - v_hat_S
    later_S = np.linalg.solve(np.eye(world.states) - discount * lam * step_SS, delta_S)
    first_SA = world.mean_reward_SA + discount * world.transition_SAS @ v_hat_S - v_hat_S[:, None]
    return np.asarray(first_SA + discount * lam * (world.transition_SAS @ later_S))


def gae_bias(world: FiniteMDP, pi_SA: Floats, error_S: Floats, lam: float) -> Floats:
    """-e(s) + discount (1 - lam) sum_l (discount lam)^l E[e(s_{t+l+1}) | s, a] for Vhat = V + e, [S, A].

    Only the second term biases a policy gradient; the first is a baseline. With lam = 1 there is none.
    """
    _endless(world)
    step_SS = np.einsum("sa,sat->st", pi_SA, world.transition_SAS)
    spread_S = np.linalg.solve(np.eye(world.states) - world.discount * lam * step_SS, error_S)
    ahead_SA = world.discount * (1 - lam) * (world.transition_SAS @ spread_S)
    return np.asarray(ahead_SA - error_S[:, None])


def emphasis(world: FiniteMDP, pi_SA: Floats, interest_S: Floats) -> Floats:
    """m = (I - discount P_pi^T)^-1 i, [S]: the limit of d_mu(s) E[F_t | s] with i = d_mu x interest.

    F_t = discount rho_{t-1} F_{t-1} + interest(s_t) is the follow-on trace (Sutton et al. 2016).
    """
    step_SS = np.einsum("sa,sat->st", pi_SA, world.transition_SAS * (~world.tables.terminal_S))
    return np.linalg.solve(np.eye(world.states) - world.discount * step_SS.T, interest_S)


def off_policy_gradient(world: FiniteMDP, pi_SA: Floats, weight_S: Floats) -> Floats:
    """sum_s weight(s) sum_a grad pi(a|s) Q(s, a) of a tabular softmax policy, [S, A].

    weight = `emphasis(i)` gives the gradient of sum_s i(s) V(s); weight = i is OffPAC (Degris et al. 2012),
    which ignores how the distribution of later states changes.
    """
    q_SA = infinite_horizon.q_value(world, pi_SA)
    advantage_SA = q_SA - (pi_SA * q_SA).sum(axis=-1, keepdims=True)
    return weight_S[:, None] * pi_SA * advantage_SA


def _radius(matrix_FF: Floats) -> float:
    return float(np.abs(np.linalg.eigvals(matrix_FF)).max())


def _endless(world: FiniteMDP) -> None:
    if world.tables.terminal_S.any() or world.discount >= 1.0:
        raise UserError(
            "This identity is for discount < 1 and no terminal states; make them absorbing with reward 0."
        )
