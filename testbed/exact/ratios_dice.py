"""Density ratios, of state marginals per step and of discounted occupancies, and abstract reward chains."""

from dataclasses import dataclass

import numpy as np

from envs import infinite_horizon
from envs.arrays import Bools, Floats, Ints
from envs.finite_mdp import FiniteMDP
from testbed.errors import UserError


@dataclass(frozen=True)
class LinearSystem:
    """A = D(I - discount P_pi), [S A, S A], and b = (1 - discount) start x pi, [S A], of given data.

    data_X is the data's distribution over the S A pairs, D its diagonal. A Q = D r gives Q; A^T zeta = b
    gives the ratio of pi's discounted occupancy to data_X. Nachum et al. (2019);
    docs/theory/density-ratios.md.
    """

    matrix_XX: Floats
    start_X: Floats
    data_X: Floats

    def ratio(self) -> Floats:
        """zeta = d_pi / data, [X]; it solves A^T zeta = b, not A zeta = b."""
        return np.asarray(np.linalg.solve(self.matrix_XX.T, self.start_X), dtype=np.float64)

    def q_value(self, reward_X: Floats) -> Floats:
        """Q of LSTD-Q with one feature per pair, [X]: A Q = D r."""
        return np.asarray(np.linalg.solve(self.matrix_XX, self.data_X * reward_X), dtype=np.float64)

    def dice_value(self, reward_X: Floats) -> float:
        """E_data[zeta r], (1 - discount) times the discounted value."""
        return float(self.data_X * reward_X @ self.ratio())

    def lstd_value(self, reward_X: Floats) -> float:
        """b . Q: equal to dice_value for any data, whether an exact distribution or counts."""
        return float(self.start_X @ self.q_value(reward_X))


def linear_system(
    joint_SAS: Floats, pi_SA: Floats, start_S: Floats, discount: float, terminal_S: Bools | None = None
) -> LinearSystem:
    """Build the system of transitions with distribution (or counts) joint_SAS; terminal states have no
    successor.

    Valid for an exact joint distribution as well as for the empirical one of n independent transitions.

    Raises UserError if a pair that pi reaches has no data, and for a discount outside [0, 1).
    """
    if not 0.0 <= discount < 1.0:
        raise UserError(f"discount is {discount:g}, expected 0 <= discount < 1 for an occupancy ratio.")
    joint_SAS = joint_SAS / joint_SAS.sum()
    states, actions = pi_SA.shape
    data_SA = joint_SAS.sum(axis=-1)
    live_S = np.ones(states) if terminal_S is None else 1.0 - np.asarray(terminal_S, dtype=float)
    # Elsewhere pi never chooses an action, so no pair can be missing there.
    met_S = (start_S > 0) | ((joint_SAS.sum(axis=(0, 1)) > 0) & (live_S > 0))
    missing_SA = met_S[:, None] & (pi_SA > 0) & (data_SA <= 0)
    if missing_SA.any():
        state, action = (int(i) for i in np.argwhere(missing_SA)[0])
        raise UserError(
            f"The data hold no action {action} in state {state}, which pi takes with probability "
            f"{pi_SA[state, action]:g}: the system is singular. Log that pair, or change pi."
        )
    follow_XSA = (joint_SAS * live_S).reshape(-1, states, 1) * pi_SA
    keep_X = (data_SA > 0).ravel()
    diagonal_X = np.where(keep_X, data_SA.ravel(), 1.0)  # without data, never reached: any ratio
    matrix_XX = np.diag(diagonal_X) - discount * follow_XSA.reshape(states * actions, -1)
    start_X = (1.0 - discount) * (start_S[:, None] * pi_SA).ravel()
    return LinearSystem(matrix_XX, start_X, data_SA.ravel())


def joint_distribution(world: FiniteMDP, data_SA: Floats) -> Floats:
    """data(s, a) P(s' | s, a), [S, A, S]."""
    return data_SA[..., None] * world.transition_SAS


def occupancy_ratio(world: FiniteMDP, pi_SA: Floats, data_SA: Floats) -> Floats:
    """(1 - discount) sum_t discount^t P(s_t, a_t) / data, [S, A], from the occupancy; infinite horizon."""
    occupancy_SA = (1.0 - world.discount) * infinite_horizon.occupancy(world, pi_SA)[:, None] * pi_SA
    return _divided("data", occupancy_SA, data_SA)


def state_marginal_ratios(world: FiniteMDP, pi_SA: Floats, mu_SA: Floats) -> Floats:
    """d_pi,t(s) / d_mu,t(s), [T, S]; 0 where both are 0. Undiscounted distributions at step t."""
    return _divided("mu", world.occupancy(pi_SA), world.occupancy(mu_SA))


def marginal_weights(world: FiniteMDP, pi_SA: Floats, mu_SA: Floats) -> Floats:
    """rho(s, a) d_pi,t(s) / d_mu,t(s) = E_mu[w_{0:t} | s_t, a_t], [T, S, A]."""
    return state_marginal_ratios(world, pi_SA, mu_SA)[..., None] * _divided("mu", pi_SA, mu_SA)


@dataclass(frozen=True)
class AbstractChain:
    """A Markov reward chain on Z cells: P(z' | z), [Z, Z], mean reward R(z), start distribution, discount.

    A row of P sums to 1 minus the probability that the episode ends; a cell never visited has P = R = 0.
    """

    transition_ZZ: Floats
    reward_Z: Floats
    start_Z: Floats
    discount: float

    @property
    def state_value_Z(self) -> Floats:
        """V = (I - discount P)^-1 R, [Z]."""
        solver_ZZ = np.eye(len(self.reward_Z)) - self.discount * self.transition_ZZ
        return np.asarray(np.linalg.solve(solver_ZZ, self.reward_Z), dtype=np.float64)

    @property
    def value(self) -> float:
        """start . V."""
        return float(self.start_Z @ self.state_value_Z)


def abstract_chain(
    world: FiniteMDP, pi_SA: Floats, abstraction_S: Ints, *, discounted_counts: bool = True
) -> AbstractChain:
    """The Markov reward chain on z = abstraction(s), from expected importance-weighted counts.

    A step t counts discount^t (else 1) w_{0:t}. For any mu its mean is discount^t d_pi,t, so the distribution
    of the data does not matter. With discounted counts the chain's value is J(pi) for every abstraction,
    because o = start + discount P^T o holds exactly for the discounted occupancy o of z. Derivation:
    docs/theory/density-ratios.md.

    Raises UserError unless every state has a label 0, 1, …
    """
    if (
        np.shape(abstraction_S) != (world.states,)
        or abstraction_S.dtype.kind not in "iu"
        or min(abstraction_S) < 0
    ):
        raise UserError(
            f"abstraction_S is {abstraction_S}, expected a label 0, 1, … for each of {world.states} states."
        )
    occupancy_TS = world.occupancy(pi_SA)
    steps_T1 = np.arange(world.horizon)[:, None]
    weight_TS = occupancy_TS * (world.discount**steps_T1 if discounted_counts else 1.0)
    live_S = ~world.tables.terminal_S
    step_SS = np.einsum("sa,sat->st", pi_SA, world.transition_SAS) * live_S
    cells = int(abstraction_S.max()) + 1
    member_SZ = np.eye(cells)[abstraction_S]
    visits_Z = weight_TS.sum(axis=0) @ member_SZ
    # The episode ends after the last step.
    moves_ZZ = member_SZ.T @ (weight_TS[:-1].sum(axis=0)[:, None] * step_SS) @ member_SZ
    reward_S = (pi_SA * world.mean_reward_SA).sum(axis=-1)
    earned_Z = (weight_TS.sum(axis=0) * reward_S) @ member_SZ
    seen_Z = np.where(visits_Z > 0, visits_Z, 1.0)
    chances_ZZ, rewards_Z = moves_ZZ / seen_Z[:, None], earned_Z / seen_Z
    return AbstractChain(chances_ZZ, rewards_Z, world.start_S @ member_SZ, world.discount)


def occupancy_chi2(occupancy_X: Floats, base_X: Floats) -> float:
    """chi2(d || base) = sum d^2 / base - 1; both are distributions over the same X pairs."""
    return float((_divided("base", occupancy_X, base_X) * occupancy_X).sum()) - 1.0


def _divided(name: str, top: Floats, bottom: Floats) -> Floats:
    """top / bottom, 0 / 0 = 0; UserError where only bottom is 0."""
    missing = (top > 0) & (bottom <= 0)
    if missing.any():
        place = tuple(int(i) for i in np.argwhere(missing)[0])
        raise UserError(
            f"{name} has no mass at index {place}, where the other distribution has "
            f"{float(top[place]):g}: the ratio is infinite. Give {name} mass there."
        )
    return np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1.0), 0.0)
