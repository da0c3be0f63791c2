# ruff: noqa: NPY002 (the generator that compiled code has)
"""Soft actor-critics on random MDPs with noisy rewards: one critic, the lesser of two, a distribution.

A critic is linear, Q = phi w with |phi| = 1. A step on the pair x adds c phi(x) to w, so c phi phi(x) to all
of Q. Tables of Q replace weights here, at a fifth of the products. X: pairs of a state and an action, x =
state * ACTIONS + action.
"""

import numba
import numpy as np

from envs.arrays import Floats

SINGLE, TWIN, DISTRIBUTION = range(3)
"""Critics: linear Q; the least of two; the mean and the log standard deviation of returns, by likelihood."""
STATES, ACTIONS, FEATURES, DISCOUNT = 16, 4, 48, 0.8
BATCH, UPDATES, POLYAK, CLIP = 8, 2, 0.02, 3.0
"""Transitions and updates per step, rate of target weights, deviations at which a target is clipped."""


@numba.njit(cache=True)
def _read(kind: int, q_2X: Floats, x: int) -> float:
    return min(q_2X[0, x], q_2X[1, x]) if kind == TWIN else q_2X[0, x]


@numba.njit(cache=True)
def _act(kind: int, q_2X: Floats, state: int, temperature: float, pi_A: Floats) -> int:
    """Write the soft policy at a state to pi_A, and return an action of it."""
    for a in range(ACTIONS):
        pi_A[a] = _read(kind, q_2X, state * ACTIONS + a)
    pi_A[:] = np.exp((pi_A - pi_A.max()) / temperature)
    pi_A /= pi_A.sum()
    left = np.random.random()
    for a in range(ACTIONS - 1):
        left -= pi_A[a]
        if left < 0.0:
            return a
    return ACTIONS - 1


@numba.njit(cache=True)
def _spread(log: float, floor: float) -> float:
    return max(floor, min(np.exp(log), 1e3))


@numba.njit(cache=True)
def _update(
    kind: int, gram_XX: Floats, q_2X: Floats, target_2X: Floats, step_3: Floats, rate: float,
    temperature: float, floor: float, pi_A: Floats,
) -> None:  # fmt: skip
    """Take one step on a transition (pair, reward, next state), tables in place.

    The distribution's steps are those of its Gaussian likelihood: (y - q) / sigma^2 for the mean and (y -
    q)^2 / sigma^2 - 1 for log sigma, with y clipped to 3 sigma in the latter; y contains a drawn return (Duan
    et al. 2021).
    """
    x, to = int(step_3[0]), int(step_3[2])
    chosen = _act(kind, q_2X, to, temperature, pi_A)
    after = to * ACTIONS + chosen
    later = _read(kind, target_2X, after)
    if kind == DISTRIBUTION:
        later += _spread(target_2X[1, after], floor) * np.random.standard_normal()
    goal = step_3[1] + DISCOUNT * (later - temperature * np.log(pi_A[chosen] + 1e-12))
    for i in range(2 if kind == TWIN else 1):
        miss = goal - q_2X[i, x]
        if kind == DISTRIBUTION:
            sigma = _spread(q_2X[1, x], floor)
            near = max(-CLIP, min(CLIP, miss / sigma))
            q_2X[1] += rate * (near**2 - 1) / BATCH * gram_XX[x]
            miss = miss / sigma**2
        q_2X[i] += rate * miss / BATCH * gram_XX[x]


@numba.njit(cache=True)
def train(
    cumulative_XS: Floats, reward_X: Floats, noise_X: Floats, features_XF: Floats, kind: int, seed: int,
    steps: int, rate: float, temperature: float, floor: float,
) -> Floats:  # fmt: skip
    """Return the critic [S, A] that the policy softmax(Q / temperature) follows at the end."""
    np.random.seed(seed)
    gram_XX, q_2X = features_XF @ features_XF.T, np.zeros((2, STATES * ACTIONS))
    if kind == TWIN:
        # Both critics learn from the same samples: only their starts tell them apart.
        q_2X += 0.01 * np.random.standard_normal((2, FEATURES)) @ features_XF.T
    target_2X, store_K3, pi_A, state = q_2X.copy(), np.zeros((steps, 3)), np.zeros(ACTIONS), 0
    for step in range(steps):
        x = state * ACTIONS + _act(kind, q_2X, state, temperature, pi_A)
        uniform, state = np.random.random(), 0
        while state < STATES - 1 and uniform >= cumulative_XS[x, state]:
            state += 1
        reward = reward_X[x] + noise_X[x] * np.random.standard_normal()
        store_K3[step] = np.array([1.0 * x, reward, 1.0 * state])
        for _ in range(UPDATES):
            for _ in range(BATCH):
                drawn_3 = store_K3[np.random.randint(step + 1)]
                _update(kind, gram_XX, q_2X, target_2X, drawn_3, rate, temperature, floor, pi_A)
            target_2X += POLYAK * (q_2X - target_2X)
        # A diverged critic starts anew, as a diverged run would be started again.
        if not np.abs(q_2X).max() < 1e6:
            q_2X[:] = 0.0
            target_2X[:] = 0.0
    out_X = np.minimum(q_2X[0], q_2X[1]) if kind == TWIN else q_2X[0]
    return out_X.reshape(STATES, ACTIONS)
