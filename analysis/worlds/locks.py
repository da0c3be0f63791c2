# ruff: noqa: NPY002 (the generator that compiled code has)
"""Combination locks, and actor-critics that open them: optimistic, exploring at random, or from logged
episodes.

A lock has H places. In each place one action leads on, unless it slips, and all others lead out of the lock,
where every step pays a little. At the last place two actions pay, one of them 0.02 to 0.4 less.
"""

import numba
import numpy as np

from envs.arrays import Floats, Ints
from testbed.rng import generator

PLACES, ACTIONS = 6, 4
STATES = PLACES + 1
"""Places of the lock, and outside, the last state."""


def lock(seed: int) -> tuple[Floats, Floats]:
    """Return probabilities [S, A, S] of the next state, and of a reward of 1, [S, A]."""
    rng = generator(seed, "lock")
    moves_SAS, pays_SA = np.zeros((STATES, ACTIONS, STATES)), np.zeros((STATES, ACTIONS))
    slip, lure, gap = rng.uniform(0.0, 0.1), rng.uniform(0.01, 0.05), rng.uniform(0.02, 0.4)
    moves_SAS[..., -1] = 1.0
    for place in range(PLACES - 1):
        right = rng.integers(ACTIONS)
        moves_SAS[place, right, -1], moves_SAS[place, right, place + 1] = slip, 1 - slip
    pays_SA[-1] = lure
    pays_SA[PLACES - 1, rng.permutation(ACTIONS)[:2]] = 0.9, 0.9 - gap
    return moves_SAS, pays_SA


@numba.njit(cache=True)
def best_value(moves_SAS: Floats, pays_SA: Floats) -> float:
    """Return the value of the best policy from the first place."""
    value_S = np.zeros(STATES)
    for _ in range(PLACES):
        new_S = np.zeros(STATES)
        for s in range(STATES):
            new_S[s] = max([pays_SA[s, a] + (moves_SAS[s, a] * value_S).sum() for a in range(ACTIONS)])
        value_S = new_S
    return value_S[0]


@numba.njit(cache=True)
def _value(moves_SAS: Floats, pays_SA: Floats, pi_HSA: Floats) -> float:
    value_S = np.zeros(STATES)
    for h in range(PLACES - 1, -1, -1):
        new_S = np.zeros(STATES)
        for s in range(STATES):
            for a in range(ACTIONS):
                new_S[s] += pi_HSA[h, s, a] * (pays_SA[s, a] + (moves_SAS[s, a] * value_S).sum())
        value_S = new_S
    return value_S[0]


@numba.njit(cache=True)
def critic(visit_SA: Floats, going_SAS: Floats, earned_SA: Floats, bonus: float) -> Floats:
    """Return Q_h = min(r + bonus / sqrt(n) + P max Q_{h+1}, H - h), [H, S, A]; unseen pairs have H - h.

    bonus below 0: no optimism, unseen pairs have Q = 0.
    """
    q_HSA, value_S = np.zeros((PLACES, STATES, ACTIONS)), np.zeros(STATES)
    for h in range(PLACES - 1, -1, -1):
        new_S = np.zeros(STATES)
        for s in range(STATES):
            for a in range(ACTIONS):
                n, most = visit_SA[s, a], 1.0 * (PLACES - h)
                if n == 0:
                    q_HSA[h, s, a] = most if bonus >= 0 else 0.0
                else:
                    q = (earned_SA[s, a] + (going_SAS[s, a] * value_S).sum()) / n
                    q_HSA[h, s, a] = min(q + max(bonus, 0.0) / np.sqrt(n), most)
            new_S[s] = q_HSA[h, s].max()
        value_S = new_S
    return q_HSA


@numba.njit(cache=True)
def _actor(q_HSA: Floats, scale: float, epsilon: float) -> Floats:
    pi_HSA = np.empty_like(q_HSA)
    for h in range(PLACES):
        for s in range(STATES):
            e_A = np.exp(scale * (q_HSA[h, s] - q_HSA[h, s].max()))
            pi_HSA[h, s] = (1 - epsilon) * e_A / e_A.sum() + epsilon / ACTIONS
    return pi_HSA


@numba.njit(cache=True)
def _episode(
    moves_SAS: Floats, pays_SA: Floats, pi_HSA: Floats, visit_SA: Floats, going_SAS: Floats, earned_SA: Floats
) -> None:
    """Play one episode and count it in place."""
    s = 0
    for h in range(PLACES):
        a = min(int((np.random.random() >= np.cumsum(pi_HSA[h, s])).sum()), ACTIONS - 1)
        to = min(int((np.random.random() >= np.cumsum(moves_SAS[s, a])).sum()), STATES - 1)
        earned_SA[s, a] += np.random.random() < pays_SA[s, a]
        visit_SA[s, a] += 1
        going_SAS[s, a, to] += 1
        s = to


@numba.njit(cache=True)
def regrets(
    moves_SAS: Floats, pays_SA: Floats, seed: int, marks_K: Ints, bonus: float, rate: float, epsilon: float,
    logged: int, skill: float,
) -> Floats:  # fmt: skip
    """Return the regret up to each of `marks_K` episodes, [K].

    The critic is refitted when some pair's visits have doubled. The actor then restarts, and takes a mirror
    step, logits += rate Q, after every episode. logged: initial episodes of a policy that takes the best
    action with probability `skill`, otherwise a random one.
    """
    np.random.seed(seed)
    shape = (STATES, ACTIONS)
    visit_SA, going_SAS, earned_SA = np.zeros(shape), np.zeros((STATES, *shape[1:], STATES)), np.zeros(shape)
    if logged:
        exact_SAS = moves_SAS * 1e9
        best_HSA = critic(np.full(shape, 1e9), exact_SAS, pays_SA * 1e9, 0.0)
        # At this scale the softmax is greedy.
        pi_HSA = _actor(best_HSA, 1e6, 1 - skill)
        for _ in range(logged):
            _episode(moves_SAS, pays_SA, pi_HSA, visit_SA, going_SAS, earned_SA)
    known_SA, age = visit_SA.copy(), 1.0
    q_HSA, best = critic(visit_SA, going_SAS, earned_SA, bonus), best_value(moves_SAS, pays_SA)
    found_K, total, mark = np.zeros(len(marks_K)), 0.0, 0
    for episode in range(marks_K[-1]):
        pi_HSA = _actor(q_HSA, rate * age, epsilon)
        total += best - _value(moves_SAS, pays_SA, pi_HSA)
        _episode(moves_SAS, pays_SA, pi_HSA, visit_SA, going_SAS, earned_SA)
        age += 1.0
        if (visit_SA >= np.maximum(2 * known_SA, known_SA + 1)).any():
            q_HSA, age = critic(visit_SA, going_SAS, earned_SA, bonus), 1.0
            known_SA = visit_SA.copy()
        if episode + 1 == marks_K[mark]:
            found_K[mark] = total
            mark += 1
    return found_K
