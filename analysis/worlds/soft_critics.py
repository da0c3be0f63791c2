# ruff: noqa: NPY002 (the generator that compiled code has)
"""Soft actor-critics on random MDPs with noisy rewards: one critic, the lesser of two, a distribution."""

import numba
import numpy as np

from envs.arrays import Floats

SINGLE, TWIN, DISTRIBUTION = range(3)
"""Critics: linear Q; the least of two; the mean and the log standard deviation of returns, by likelihood."""
STATES, ACTIONS, FEATURES, DISCOUNT = 16, 4, 48, 0.8
BATCH, UPDATES, POLYAK, CLIP = 8, 2, 0.02, 3.0
"""Transitions and updates per step, rate of target weights, deviations at which a target is clipped."""


@numba.njit(cache=True)
def _soft_policy(q_A: Floats, temperature: float) -> Floats:
    e_A = np.exp((q_A - q_A.max()) / temperature)
    return e_A / e_A.sum()


@numba.njit(cache=True)
def _draw(p_A: Floats) -> int:
    return min(int((np.random.random() >= np.cumsum(p_A)).sum()), len(p_A) - 1)


@numba.njit(cache=True)
def _table(features_SAF: Floats, weight_F: Floats) -> Floats:
    out_SA = np.empty((STATES, ACTIONS))
    for s in range(STATES):
        out_SA[s] = features_SAF[s] @ weight_F
    return out_SA


@numba.njit(cache=True)
def _used(kind: int, features_SAF: Floats, weight_2F: Floats) -> Floats:
    """Return the critic that the policy follows, [S, A]."""
    first_SA = _table(features_SAF, weight_2F[0])
    if kind == TWIN:
        return np.minimum(first_SA, _table(features_SAF, weight_2F[1]))
    return first_SA


@numba.njit(cache=True)
def _update(
    kind: int, features_SAF: Floats, weight_2F: Floats, target_2F: Floats, step_4: Floats, rate: float,
    temperature: float, floor: float,
) -> None:  # fmt: skip
    """Take one step on a transition (state, action, reward, next), weights in place.

    The distribution's steps are those of its Gaussian likelihood: (y - q) / sigma^2 for the mean,
    (y - q)^2 / sigma^2 - 1 for log sigma, y there clipped to 3 sigma; y holds a drawn return
    (Duan et al. 2021).
    """
    state, action, to = int(step_4[0]), int(step_4[1]), int(step_4[3])
    old_SA = features_SAF[to] @ target_2F[0]
    if kind == TWIN:
        old_SA = np.minimum(old_SA, features_SAF[to] @ target_2F[1])
    now_A = features_SAF[to] @ weight_2F[0]
    if kind == TWIN:
        now_A = np.minimum(now_A, features_SAF[to] @ weight_2F[1])
    pi_A = _soft_policy(now_A, temperature)
    chosen = _draw(pi_A)
    later = old_SA[chosen]
    if kind == DISTRIBUTION:
        spread = np.exp((features_SAF[to] @ target_2F[1])[chosen])
        later += max(floor, min(spread, 1e3)) * np.random.standard_normal()
    goal = step_4[2] + DISCOUNT * (later - temperature * np.log(pi_A[chosen] + 1e-12))
    phi_F = features_SAF[state, action]
    for i in range(2 if kind == TWIN else 1):
        miss = goal - phi_F @ weight_2F[i]
        if kind == DISTRIBUTION:
            sigma = max(floor, min(np.exp(phi_F @ weight_2F[1]), 1e3))
            near = max(-CLIP, min(CLIP, miss / sigma))
            weight_2F[1] += rate * (near**2 - 1) * phi_F / BATCH
            miss = miss / sigma**2
        weight_2F[i] += rate * miss * phi_F / BATCH


@numba.njit(cache=True)
def train(
    cumulative_SAS: Floats, reward_SA: Floats, noise_SA: Floats, features_SAF: Floats, kind: int, seed: int,
    steps: int, rate: float, temperature: float, floor: float,
) -> Floats:  # fmt: skip
    """Return the critic [K, S, A] that the policy softmax(Q / temperature) follows after each tenth."""
    np.random.seed(seed)
    weight_2F = np.zeros((2, FEATURES))
    if kind == TWIN:
        weight_2F += 0.01 * np.random.standard_normal((2, FEATURES))
    target_2F, store_K4, found_KSA = weight_2F.copy(), np.zeros((steps, 4)), np.zeros((10, STATES, ACTIONS))
    state = 0
    for step in range(steps):
        q_A = features_SAF[state] @ weight_2F[0]
        if kind == TWIN:
            q_A = np.minimum(q_A, features_SAF[state] @ weight_2F[1])
        action = _draw(_soft_policy(q_A, temperature))
        to = min(int((np.random.random() >= cumulative_SAS[state, action]).sum()), STATES - 1)
        reward = reward_SA[state, action] + noise_SA[state, action] * np.random.standard_normal()
        store_K4[step] = np.array([1.0 * state, 1.0 * action, reward, 1.0 * to])
        state = to
        for _ in range(UPDATES):
            for _ in range(BATCH):
                drawn = store_K4[np.random.randint(step + 1)]
                _update(kind, features_SAF, weight_2F, target_2F, drawn, rate, temperature, floor)
            target_2F += POLYAK * (weight_2F - target_2F)
        if not np.abs(weight_2F).max() < 1e6:
            weight_2F[:] = 0.0
            target_2F[:] = 0.0
        if (step + 1) % (steps // 10) == 0:
            found_KSA[(step + 1) // (steps // 10) - 1] = _used(kind, features_SAF, weight_2F)
    return found_KSA
