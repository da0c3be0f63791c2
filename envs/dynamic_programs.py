"""Compiled dynamic programs over a finite horizon, for many policies in parallel.

One thread sums a policy in a fixed order: its numbers depend neither on threads nor on other policies.
"""

import math

import numpy as np
from numba import njit, prange

from envs.arrays import Floats
from envs.tables import Tables


@njit(cache=True, parallel=True)
def action_values(tables: Tables, pi_RSA: Floats) -> tuple[Floats, Floats]:
    """Q_t(s, a) = r(s, a) + discount * E[V_{t+1}(s')], [R, T, S, A], and V_t(s), [R, T + 1, S].

    Both are 0 in terminal states; V_T = 0 because no reward follows the last step.
    """
    replicas, states, actions = pi_RSA.shape
    q_RTSA = np.zeros((replicas, tables.horizon, states, actions))
    value_RTS = np.zeros((replicas, tables.horizon + 1, states))
    for r in prange(replicas):
        for back in range(tables.horizon):
            t = tables.horizon - 1 - back
            for s in range(states):
                if tables.terminal_S[s]:
                    continue
                for a in range(actions):
                    row = s * actions + a
                    ahead = 0.0
                    for k in range(tables.count_X[row]):
                        ahead += tables.probability_XK[row, k] * value_RTS[r, t + 1, tables.next_XK[row, k]]
                    q = tables.mean_reward_X[row] + tables.discount * ahead
                    q_RTSA[r, t, s, a] = q
                    value_RTS[r, t, s] += pi_RSA[r, s, a] * q
    return q_RTSA, value_RTS


@njit(cache=True)
def _spread(tables: Tables, mass: float, row: int, onto_S: Floats) -> float:
    """Add mass * P(s' | row) to onto_S for every live s'; return the mass that ends."""
    ended = 0.0
    for k in range(tables.count_X[row]):
        following = tables.next_XK[row, k]
        if tables.terminal_S[following]:
            ended += mass * tables.probability_XK[row, k]
        else:
            onto_S[following] += mass * tables.probability_XK[row, k]
    return ended


@njit(cache=True, parallel=True)
def state_occupancy(tables: Tables, pi_RSA: Floats) -> Floats:
    """P(s_t = s and the episode is not over), [R, T, S]; 0 in terminal states."""
    replicas, states, actions = pi_RSA.shape
    occupancy_RTS = np.zeros((replicas, tables.horizon, states))
    for r in prange(replicas):
        mass_S = tables.start_S
        for t in range(tables.horizon):
            later_S = np.zeros(states)
            for s in range(states):
                occupancy_RTS[r, t, s] = mass_S[s]
                if mass_S[s] == 0.0:
                    continue
                for a in range(actions):
                    _spread(tables, mass_S[s] * pi_RSA[r, s, a], s * actions + a, later_S)
            mass_S = later_S
    return occupancy_RTS


@njit(cache=True)
def _row_log_moments(pi_RSA: Floats, mu_RSA: Floats, r: int, s: int) -> tuple[float, float, float, float]:
    """(KL(pi, mu), KL(mu, pi), E_mu rho^2, E_mu rho) of actions in one state; inf off the support."""
    kl_pi_mu, kl_mu_pi, square, mean = 0.0, 0.0, 0.0, 0.0
    for a in range(pi_RSA.shape[2]):
        pi, mu = pi_RSA[r, s, a], mu_RSA[r, s, a]
        if pi > 0.0 and mu > 0.0:
            log_rho = math.log(pi) - math.log(mu)
            kl_pi_mu += pi * log_rho
            kl_mu_pi -= mu * log_rho
            square += pi * (pi / mu)
            mean += pi
        elif pi > 0.0:
            kl_pi_mu = math.inf
            square = math.inf
        elif mu > 0.0:
            kl_mu_pi = math.inf
    return kl_pi_mu, kl_mu_pi, square, mean


@njit(cache=True, parallel=True)
def divergence_sums(
    tables: Tables, pi_RSA: Floats, mu_RSA: Floats, pi_occupancy_RTS: Floats, mu_occupancy_RTS: Floats
) -> Floats:
    """Per replica, summed over the steps of an episode: [R, 5].

    Columns: KL(pi, mu) under pi; KL(mu, pi) under mu; rho^2, rho and 1 under mu.
    """
    replicas, states, _ = pi_RSA.shape
    sums_RM = np.zeros((replicas, 5))
    for r in prange(replicas):
        for s in range(states):
            by_pi, by_mu = 0.0, 0.0
            for t in range(tables.horizon):
                by_pi += pi_occupancy_RTS[r, t, s]
                by_mu += mu_occupancy_RTS[r, t, s]
            kl_pi_mu, kl_mu_pi, square, mean = _row_log_moments(pi_RSA, mu_RSA, r, s)
            # A state that is never visited adds nothing, even if its divergence is infinite.
            if by_pi > 0.0:
                sums_RM[r, 0] += by_pi * kl_pi_mu
            if by_mu > 0.0:
                sums_RM[r, 1] += by_mu * kl_mu_pi
                sums_RM[r, 2] += by_mu * square
                sums_RM[r, 3] += by_mu * mean
                sums_RM[r, 4] += by_mu
    return sums_RM


@njit(cache=True, parallel=True)
def prefix_second_moments(tables: Tables, pi_RSA: Floats, mu_RSA: Floats) -> Floats:
    """E_mu of the squared prefix ratio after t + 1 steps, [R, T]; a finished episode keeps its ratio.

    Forward recursion start M^t, M(s, s') = sum_a pi^2/mu P(s' | s, a): docs/theory/sequence-ratios.md.
    """
    replicas, states, actions = pi_RSA.shape
    moment_RT = np.zeros((replicas, tables.horizon))
    for r in prange(replicas):
        finished = 0.0
        weight_S = tables.start_S
        for t in range(tables.horizon):
            later_S = np.zeros(states)
            total, ended = 0.0, 0.0
            for s in range(states):
                if weight_S[s] == 0.0:
                    continue
                for a in range(actions):
                    pi, mu = pi_RSA[r, s, a], mu_RSA[r, s, a]
                    # Skipped first: an action that neither takes, mu = 0 too, would weigh infinitely.
                    if pi == 0.0:
                        continue
                    mass = math.inf if mu == 0.0 else weight_S[s] * pi * (pi / mu)
                    total += mass
                    ended += _spread(tables, mass, s * actions + a, later_S)
            moment_RT[r, t] = finished + total
            finished += ended
            weight_S = later_S
    return moment_RT


@njit(cache=True, parallel=True)
def largest_log_ratio(tables: Tables, pi_RSA: Floats, mu_RSA: Floats) -> Floats:
    """max of log w over episodes that pi can produce, [R]: a longest path, backward over the horizon."""
    replicas, states, actions = pi_RSA.shape
    largest_R = np.empty(replicas)
    for r in prange(replicas):
        ahead_S = np.zeros(states)
        for _ in range(tables.horizon):
            earlier_S = np.full(states, -math.inf)
            for s in range(states):
                if tables.terminal_S[s]:
                    earlier_S[s] = 0.0
                    continue
                for a in range(actions):
                    pi, mu = pi_RSA[r, s, a], mu_RSA[r, s, a]
                    if pi == 0.0:
                        continue
                    best = -math.inf
                    for k in range(tables.count_X[s * actions + a]):
                        best = max(best, ahead_S[tables.next_XK[s * actions + a, k]])
                    log_rho = math.inf if mu == 0.0 else math.log(pi) - math.log(mu)
                    earlier_S[s] = max(earlier_S[s], log_rho + best)
            ahead_S = earlier_S
        largest_R[r] = -math.inf
        for s in range(states):
            if tables.start_S[s] > 0.0:
                largest_R[r] = max(largest_R[r], ahead_S[s])
    return largest_R
