"""Exact means and variances of importance-weighted estimators in a finite-horizon MDP.

Backward recursions compute all of them; `enumerate_episodes` lists the episodes of small worlds. Policies are
stationary tables pi_SA; episodes come from mu_SA. Returns include the world's noise and bonus.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from envs.arrays import Bools, Floats, Ints
from envs.finite_mdp import FiniteMDP
from testbed.errors import UserError

MOST_EPISODES = 200_000
"""Largest number of episodes that `enumerate_episodes` lists."""


@dataclass(frozen=True)
class WeightedMoments:
    """E_mu of w^2, w^2 G and w^2 G^2 for the sequence ratio w and the discounted return G."""

    square: float
    square_return: float
    square_return_square: float


@dataclass(frozen=True)
class EpisodeTable:
    """Every episode of a policy: probability [N], state and action [N, T], reward [N, T], mask [N, T]."""

    probability_N: Floats
    state_NT: Ints
    action_NT: Ints
    reward_NT: Floats
    mask_NT: Bools

    def mean(self, value_N: Floats) -> float:
        return float(self.probability_N @ value_N)

    def variance(self, value_N: Floats) -> float:
        return float(self.probability_N @ (value_N - self.mean(value_N)) ** 2)


@dataclass(frozen=True)
class EpisodeEstimates:
    """One-episode estimates of J(pi), [N]: IS w G, PDIS sum_t discount^t w_{0:t} r_t, and doubly robust."""

    importance_N: Floats
    per_decision_N: Floats
    doubly_robust_N: Floats


def squared_ratio(world: FiniteMDP, pi_SA: Floats, mu_SA: Floats) -> Floats:
    """pi^2 / mu, [S, A], 0 where pi = 0. UserError names a pair with pi > 0 = mu that has a way out."""
    alive_S1 = ~world.tables.terminal_S[:, None]
    missing_SA = (pi_SA > 0) & (mu_SA <= 0) & alive_S1
    if missing_SA.any():
        state, action = (int(i) for i in np.argwhere(missing_SA)[0])
        raise UserError(
            f"mu never takes action {action} in state {state}, but pi does with probability "
            f"{pi_SA[state, action]:g}: the ratio is infinite. Give mu mass there."
        )
    used_SA = (pi_SA > 0) & (mu_SA > 0)
    return np.where(used_SA, pi_SA**2 / np.where(used_SA, mu_SA, 1.0), 0.0)


def squared_ratio_matrix(world: FiniteMDP, pi_SA: Floats, mu_SA: Floats) -> tuple[Floats, Floats]:
    """M(s, s') = sum_a pi^2/mu P(s' | s, a) between live states, [S, S], and m(s) = sum_a pi^2/mu, [S].

    Without terminal states E_mu w_{0:t}^2 = start . M^t m; it grows at rate ln of M's spectral radius.
    Derivation: docs/theory/sequence-ratios.md.
    """
    alive_S = ~world.tables.terminal_S
    square_SA = squared_ratio(world, pi_SA, mu_SA) * alive_S[:, None]
    step_SS = np.einsum("sa,sat->st", square_SA, world.transition_SAS) * alive_S
    return step_SS, square_SA.sum(axis=-1)


def weighted_moments(world: FiniteMDP, pi_SA: Floats, mu_SA: Floats) -> WeightedMoments:
    """Second moments of the sequence ratio with the return, by one backward recursion."""
    square_SA = squared_ratio(world, pi_SA, mu_SA)
    terminal_S, bonus_S, discount = world.tables.terminal_S, world.tables.bonus_S, world.discount
    noise_SA = world.noise_variance_SA()
    plain_S, first_S = np.ones(world.states), np.zeros(world.states)
    second_S = np.zeros(world.states)
    for _ in range(world.horizon):
        # Given (s, a): G = r + tail, tail = bonus(s') + discount G'; all weighted by the later w^2.
        tail_SA = world.transition_SAS @ (bonus_S * plain_S + discount * first_S)
        tail_square_SA = world.transition_SAS @ (
            bonus_S**2 * plain_S + 2 * bonus_S * discount * first_S + discount**2 * second_S
        )
        ahead_SA = world.transition_SAS @ plain_S
        second_SA = (noise_SA + world.reward_SA**2) * ahead_SA + 2 * world.reward_SA * tail_SA
        second_SA += tail_square_SA
        first_SA = world.reward_SA * ahead_SA + tail_SA
        # An ended episode keeps its weight and earns nothing more.
        plain_S = np.where(terminal_S, 1.0, (square_SA * ahead_SA).sum(axis=-1))
        first_S = np.where(terminal_S, 0.0, (square_SA * first_SA).sum(axis=-1))
        second_S = np.where(terminal_S, 0.0, (square_SA * second_SA).sum(axis=-1))
    return WeightedMoments(*(float(world.start_S @ each_S) for each_S in (plain_S, first_S, second_S)))


def importance_variance(world: FiniteMDP, pi_SA: Floats, mu_SA: Floats) -> float:
    """Var_mu(w G) = E_mu[w^2 G^2] - J(pi)^2 of trajectory importance sampling, one episode."""
    square = weighted_moments(world, pi_SA, mu_SA).square_return_square
    # Here and below, differences of moments leave -1e-17 for a variance of 0.
    return max(square - float(world.value(pi_SA)) ** 2, 0.0)


def doubly_robust_variance(
    world: FiniteMDP, pi_SA: Floats, mu_SA: Floats, q_hat_TSA: Floats | None = None
) -> float:
    """Var of X_0, X_t = Vhat(s) + rho (r + discount X_{t+1} - Qhat(s, a)), Vhat = sum_a pi Qhat.

    q_hat_TSA: fixed in advance, [T, S, A] or anything that broadcasts to it; None is 0, which is PDIS.
    Recursion: Var_t(s) = Var_{a~mu}[rho (Q - Qhat)] + E_mu[rho^2 (noise + Var(bonus + discount V(s')) +
    discount^2 E Var_{t+1}(s'))]. Source: Jiang & Li (2016), theorem 1.
    """
    square_SA, q_TSA = squared_ratio(world, pi_SA, mu_SA), world.q_value(pi_SA)
    error_TSA = q_TSA - np.broadcast_to(0.0 if q_hat_TSA is None else q_hat_TSA, q_TSA.shape)
    value_TS = np.vstack([(pi_SA * q_TSA).sum(axis=-1), np.zeros((1, world.states))])
    variance_S = np.zeros(world.states)
    for t in reversed(range(world.horizon)):
        ahead_S = world.tables.bonus_S + world.discount * value_TS[t + 1]
        mean_SA = world.transition_SAS @ ahead_S
        inner_SA = world.noise_variance_SA() + (world.transition_SAS @ ahead_S**2 - mean_SA**2)
        inner_SA += world.discount**2 * (world.transition_SAS @ variance_S)
        by_action_S = (square_SA * error_TSA[t] ** 2).sum(axis=-1) - (pi_SA * error_TSA[t]).sum(axis=-1) ** 2
        variance_S = by_action_S + (square_SA * inner_SA).sum(axis=-1)
        variance_S = np.where(world.tables.terminal_S, 0.0, variance_S)
    first_S = value_TS[0]
    return max(float(world.start_S @ (variance_S + first_S**2) - (world.start_S @ first_S) ** 2), 0.0)


def per_decision_variance(world: FiniteMDP, pi_SA: Floats, mu_SA: Floats) -> float:
    """Var_mu(sum_t discount^t w_{0:t} r_t), one episode."""
    return doubly_robust_variance(world, pi_SA, mu_SA)


def additive_moments(world: FiniteMDP, mu_SA: Floats, weight_TSA: Floats) -> tuple[float, float]:
    """Mean and variance under mu of sum_t discount^t weight_t(s_t, a_t) r_t.

    With weight_t = rho(s, a) d_pi,t(s) / d_mu,t(s) it is marginalized importance sampling.
    """
    mean_S, variance_S = np.zeros(world.states), np.zeros(world.states)
    for t in reversed(range(world.horizon)):
        weight_SA = weight_TSA[t]
        tail_SAS = weight_SA[..., None] * world.tables.bonus_S + world.discount * mean_S
        tail_SA = (world.transition_SAS * tail_SAS).sum(axis=-1)
        mean_SA = weight_SA * world.reward_SA + tail_SA
        inner_SA = (world.transition_SAS * tail_SAS**2).sum(axis=-1) - tail_SA**2
        inner_SA += weight_SA**2 * world.noise_variance_SA()
        inner_SA += world.discount**2 * (world.transition_SAS @ variance_S)
        mean_S = (mu_SA * mean_SA).sum(axis=-1)
        variance_S = (mu_SA * (inner_SA + mean_SA**2)).sum(axis=-1) - mean_S**2
        mean_S, variance_S = (np.where(world.tables.terminal_S, 0.0, x_S) for x_S in (mean_S, variance_S))
    mean = float(world.start_S @ mean_S)
    return mean, max(float(world.start_S @ (variance_S + mean_S**2)) - mean**2, 0.0)


def enumerate_episodes(world: FiniteMDP, mu_SA: Floats, most: int = MOST_EPISODES) -> EpisodeTable:
    """List every episode of mu, noise included; after the end state, action and reward are 0.

    Raises UserError for normal noise, which cannot be enumerated, and for more than `most` episodes.
    """
    if world.noise == "normal":
        raise UserError("Episodes with normal noise cannot be enumerated; use noise 'none' or 'bernoulli'.")
    # A row: probability, current state, episode over; then columns per step.
    chance_N, state_N = world.start_S[world.start_S > 0], np.flatnonzero(world.start_S > 0)
    over_N = np.zeros(len(chance_N), dtype=bool)
    columns: list[list[NDArray[np.generic]]] = []
    for t in range(world.horizon):
        parent_M, chance_M, action_M, reward_M, next_M = _branches(world, mu_SA, chance_N, state_N, over_N)
        if len(parent_M) > most:
            raise UserError(
                f"{len(parent_M)} episodes after {t + 1} of {world.horizon} steps exceed {most}; "
                "take fewer states, actions or steps, or the recursions of this module."
            )
        columns = [[column[parent_M] for column in row] for row in columns]
        here_M = np.where(over_N[parent_M], 0, state_N[parent_M])
        columns.append([here_M, action_M, reward_M, ~over_N[parent_M]])
        over_N = over_N[parent_M] | world.tables.terminal_S[next_M]
        chance_N, state_N = chance_M, next_M
    state_NT, action_NT, reward_NT, mask_NT = (np.stack(each, axis=-1) for each in zip(*columns, strict=True))
    state_NT, action_NT = state_NT.astype(np.int64), action_NT.astype(np.int64)
    return EpisodeTable(chance_N, state_NT, action_NT, reward_NT.astype(float), mask_NT.astype(bool))


def estimates(
    table: EpisodeTable, pi_SA: Floats, mu_SA: Floats, discount: float, q_hat_TSA: Floats | None = None
) -> EpisodeEstimates:
    """IS, PDIS and DR of each single episode; Vhat = sum_a pi Qhat, 0 once the episode is over."""
    steps = table.state_NT.shape[1]
    with np.errstate(divide="ignore", invalid="ignore"):  # padding has action 0, which mu may never take
        rho_NT = pi_SA[table.state_NT, table.action_NT] / mu_SA[table.state_NT, table.action_NT]
    weight_NT = np.cumprod(np.where(table.mask_NT, rho_NT, 1.0), axis=-1)
    before_NT = np.hstack([np.ones((len(weight_NT), 1)), weight_NT[:, :-1]])
    discount_T = np.power(discount, np.arange(steps), dtype=np.float64)
    q_hat_TSA = np.broadcast_to(0.0 if q_hat_TSA is None else q_hat_TSA, (steps, *pi_SA.shape))
    v_hat_TS = (pi_SA * q_hat_TSA).sum(axis=-1)
    time_T = np.arange(steps)
    q_hat_NT = np.where(table.mask_NT, q_hat_TSA[time_T, table.state_NT, table.action_NT], 0.0)
    v_hat_NT = np.where(table.mask_NT, v_hat_TS[time_T, table.state_NT], 0.0)
    robust_NT = weight_NT * (table.reward_NT - q_hat_NT) + before_NT * v_hat_NT
    plain_N = weight_NT[:, -1] * (table.reward_NT @ discount_T)
    return EpisodeEstimates(plain_N, (weight_NT * table.reward_NT) @ discount_T, robust_NT @ discount_T)


def _branches(
    world: FiniteMDP, mu_SA: Floats, chance_N: Floats, state_N: Ints, over_N: Bools
) -> tuple[Ints, Floats, Ints, Floats, Ints]:
    """List parent, probability, action, reward, next state of continuations of positive probability."""
    parent_L, action_L, next_L = np.nonzero(
        (mu_SA[state_N, :, None] * world.transition_SAS[state_N] > 0) & ~over_N[:, None, None]
    )
    origin_L = state_N[parent_L]
    chance_L = chance_N[parent_L] * mu_SA[origin_L, action_L]
    chance_L = chance_L * world.transition_SAS[origin_L, action_L, next_L]
    reward_L = world.reward_SA[origin_L, action_L] + world.tables.bonus_S[next_L]
    if world.noise == "bernoulli":
        head_L = world.reward_SA[origin_L, action_L]
        parent_L, action_L, next_L = (np.concatenate([x, x]) for x in (parent_L, action_L, next_L))
        chance_L = np.concatenate([chance_L * head_L, chance_L * (1 - head_L)])
        # The coin replaces the mean reward, which reward_L holds beside the bonus.
        reward_L = np.concatenate([1.0 - head_L + reward_L, reward_L - head_L])
    ended = np.flatnonzero(over_N)
    none = np.zeros(len(ended), dtype=np.int64)
    kept = chance_L > 0
    return (
        np.concatenate([parent_L[kept], ended]),
        np.concatenate([chance_L[kept], chance_N[ended]]),
        np.concatenate([action_L[kept], none]),
        np.concatenate([reward_L[kept], none.astype(float)]),
        np.concatenate([next_L[kept], state_N[ended]]),
    )
