# ruff: noqa: NPY002 (the generator that compiled code has)
"""Imitation, offline updates between collections and online updates, by one clipped objective (RL-100).

Tasks are those of `assisted_robots`, stages in a row, with more actions that lead back to the start.
"""

import numba
import numpy as np

from analysis.worlds.assisted_robots import (
    ACTIONS,
    DISCOUNT,
    HORIZON,
    PRIOR,
    STAGES,
    STORE,
    _episode,
    success,
)
from envs.arrays import Floats, Ints
from testbed.rng import generator

DEMOS, SKILL, BACK, TRIES, BATCHES = 2, 0.7, 5, 1, 8
"""Demonstrations, probability that they take the right action instead of a random one, actions that lead
back, tries per batch, and number of batches."""
UPDATES, PASSES, SWEEPS, CLIP = 5, 8, 30, 0.2
"""Offline updates per batch, steps of an update, sweeps of a critic, and the clip of ratios."""


def task(seed: int) -> Ints:
    """Return the effect of each action in each stage, [L, A]: 1 leads on, -1 back to the start, 0 nowhere."""
    rng = generator(seed, "staged robot")
    order_LA = rng.random((STAGES, ACTIONS)).argsort(-1)
    return np.where(order_LA == 0, 1, np.where(order_LA <= BACK, -1, 0))


@numba.njit(cache=True)
def _fitted(store_K3: Ints, stored: int, expectile: float) -> tuple[Floats, Floats]:
    """Return Q [L, A] and V [L] of implicit Q-learning: V is the expectile of Q over stored actions."""
    q_LA, value_L = np.zeros((STAGES, ACTIONS)), np.zeros(STAGES)
    for _ in range(SWEEPS):
        sum_LA, count_LA = np.zeros((STAGES, ACTIONS)), np.full((STAGES, ACTIONS), 1e-9)
        for i in range(stored):
            end = store_K3[i, 2]
            later = 1.0 if end == 1 else (0.0 if end == 2 else value_L[store_K3[i + 1, 0]])
            sum_LA[store_K3[i, 0], store_K3[i, 1]] += DISCOUNT * later
            count_LA[store_K3[i, 0], store_K3[i, 1]] += 1
        q_LA = sum_LA / count_LA
        for _ in range(2):
            for stage in range(STAGES):
                above_A = np.where(q_LA[stage] > value_L[stage], expectile, 1 - expectile) * count_LA[stage]
                value_L[stage] = (above_A * q_LA[stage]).sum() / above_A.sum()
    return q_LA, value_L


@numba.njit(cache=True)
def _modelled(store_K3: Ints, stored: int, pi_LA: Floats) -> float:
    """Return a policy's value in the model of all stored steps; an untaken action stays in place."""
    chance_LAL = np.zeros((STAGES, ACTIONS, STAGES + 1))
    for i in range(stored):
        if store_K3[i, 2] != 2:
            to = STAGES if store_K3[i, 2] == 1 else store_K3[i + 1, 0]
            chance_LAL[store_K3[i, 0], store_K3[i, 1], to] += 1
    value_L = np.zeros(STAGES + 1)
    for _ in range(HORIZON):
        new_L = np.zeros(STAGES + 1)
        for stage in range(STAGES):
            for a in range(ACTIONS):
                seen = chance_LAL[stage, a].sum()
                later = value_L[stage]
                if seen > 0:
                    later = (chance_LAL[stage, a] * value_L).sum() + chance_LAL[stage, a, STAGES]
                    later /= seen
                new_L[stage] += pi_LA[stage, a] * DISCOUNT * later
        value_L = new_L
    return value_L[0]


@numba.njit(cache=True)
def _stepped(pi_LA: Floats, weight_LA: Floats, adv_LA: Floats, rate: float) -> Floats:
    """Return the policy after PASSES steps on weight min(ratio A, clip(ratio) A), in logits."""
    logit_LA, new_LA = np.log(pi_LA + 1e-12), pi_LA.copy()
    for _ in range(PASSES):
        ratio_LA = new_LA / (pi_LA + 1e-12)
        kept_LA = np.where(adv_LA > 0, ratio_LA < 1 + CLIP, ratio_LA > 1 - CLIP)
        pull_LA = weight_LA * adv_LA * ratio_LA * kept_LA
        for stage in range(STAGES):
            logit_LA[stage] += rate * (pull_LA[stage] - pull_LA[stage].sum() * new_LA[stage])
            e_A = np.exp(logit_LA[stage] - logit_LA[stage].max())
            new_LA[stage] = e_A / e_A.sum()
    return new_LA


@numba.njit(cache=True)
def _weighed(store_K3: Ints, chosen_K: Ints, adv_K: Floats) -> tuple[Floats, Floats]:
    """Return the shares of chosen steps and their mean advantages over its deviation, [L, A]."""
    sum_LA, count_LA = np.zeros((STAGES, ACTIONS)), np.zeros((STAGES, ACTIONS))
    for k in range(len(chosen_K)):
        i = chosen_K[k]
        sum_LA[store_K3[i, 0], store_K3[i, 1]] += adv_K[k]
        count_LA[store_K3[i, 0], store_K3[i, 1]] += 1
    return count_LA / len(chosen_K), sum_LA / (count_LA + 1e-9) / (adv_K.std() + 1e-6)


@numba.njit(cache=True)
def staged(
    effect_LA: Ints, seed: int, offline: int, rate: float, offline_rate: float, trace: float,
    expectile: float, gain: float,
) -> Floats:  # fmt: skip
    """Return the exact success probability before the first collection and after each, [1 + BATCHES].

    After each of the first `offline` collections the policy takes updates on all stored steps by implicit
    Q-learning's advantages, each only if its value in a model grows by the share `gain`. After the others it
    takes PPO's updates on the fresh steps, by traces of temporal differences.
    """
    np.random.seed(seed)
    store_K3, stored = np.zeros((STORE, 3), dtype=np.int64), 0
    guide_LA, pi_LA = np.full((STAGES, ACTIONS), (1 - SKILL) / ACTIONS), np.full((STAGES, ACTIONS), PRIOR)
    for stage in range(STAGES):
        guide_LA[stage, int(np.argmax(effect_LA[stage]))] += SKILL
    for _ in range(DEMOS):
        stored = _episode(effect_LA, guide_LA, 0.0, store_K3, stored)
    for i in range(stored):
        pi_LA[store_K3[i, 0], store_K3[i, 1]] += 1
    for stage in range(STAGES):
        pi_LA[stage] /= pi_LA[stage].sum()
    found_K = np.full(1 + BATCHES, success(effect_LA, pi_LA, 1.0))
    for batch in range(BATCHES):
        first = stored
        for _ in range(TRIES):
            stored = _episode(effect_LA, pi_LA, 0.0, store_K3, stored)
        if batch < offline:
            q_LA, value_L = _fitted(store_K3, stored, expectile)
            for _ in range(UPDATES):
                chosen_K = np.random.randint(0, stored, stored // 2)
                adv_K = np.array(
                    [q_LA[store_K3[i, 0], store_K3[i, 1]] - value_L[store_K3[i, 0]] for i in chosen_K]
                )
                weight_LA, adv_LA = _weighed(store_K3, chosen_K, adv_K)
                new_LA = _stepped(pi_LA, weight_LA, adv_LA, offline_rate)
                was = _modelled(store_K3, stored, pi_LA)
                if _modelled(store_K3, stored, new_LA) - was > gain * was:
                    pi_LA = new_LA
        else:
            _, value_L = _fitted(store_K3, stored, 0.5)
            chosen_K, adv_K, later = np.arange(first, stored), np.zeros(stored - first), 0.0
            for k in range(stored - first - 1, -1, -1):
                i = first + k
                end = store_K3[i, 2]
                after = 1.0 if end == 1 else (0.0 if end == 2 else value_L[store_K3[i + 1, 0]])
                later = DISCOUNT * after - value_L[store_K3[i, 0]] + DISCOUNT * trace * later * (end == 0)
                adv_K[k] = later
            weight_LA, adv_LA = _weighed(store_K3, chosen_K, adv_K)
            pi_LA = _stepped(pi_LA, weight_LA, adv_LA, rate)
        found_K[1 + batch] = success(effect_LA, pi_LA, 1.0)
    return found_K
