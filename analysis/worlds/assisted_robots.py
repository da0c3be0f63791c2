# ruff: noqa: NPY002 (the generator that compiled code has)
"""A task of L stages that a cloned policy learns from demonstrations, its own tries and interventions of a
person.

In each stage one action leads on, one leads back to the start and the others do nothing; any may slip.
Critics of the pooled episodes weight the cloned steps: logged outcomes, or temporal differences over chunks
of k actions.
"""

import numba
import numpy as np

from envs.arrays import Floats, Ints
from testbed.rng import generator

STAGES, ACTIONS, HORIZON, DISCOUNT, SLIP = 16, 8, 80, 0.97, 0.2
DEMOS, TRIES, ROUNDS, SKILL, HELP, STORE = 2, 2, 8, 0.5, 0.3, 4096
"""Demonstrations, tries per round, rounds; probability that the demonstrator takes the right action instead
of a random one, and that a person corrects an action that leads back."""
# More sweeps than stages: a value moves back one chunk a sweep, and chunks may hold one action.
SWEEPS, PRIOR = 20, 0.2


def task(seed: int) -> Ints:
    """Return the effect of each action in each stage, [L, A]: 1 leads on, -1 back to the start, 0 nowhere."""
    rng = generator(seed, "assisted robot")
    effect_LA = np.zeros((STAGES, ACTIONS), dtype=np.int64)
    for stage in range(STAGES):
        order = rng.permutation(ACTIONS)
        effect_LA[stage, order[0]], effect_LA[stage, order[1]] = 1, -1
    return effect_LA


@numba.njit(cache=True)
def success(effect_LA: Ints, pi_LA: Floats, discount: float = DISCOUNT) -> float:
    """Return the exact expected discounted reward, discount^steps at the end, within the horizon."""
    value_L = np.zeros(STAGES + 1)
    for _ in range(HORIZON):
        new_L = np.zeros(STAGES + 1)
        for stage in range(STAGES):
            for a in range(ACTIONS):
                to = stage + 1 if effect_LA[stage, a] == 1 else (0 if effect_LA[stage, a] == -1 else stage)
                later = 1.0 if to == STAGES else value_L[to]
                new_L[stage] += pi_LA[stage, a] * discount * ((1 - SLIP) * later + SLIP * value_L[stage])
        value_L = new_L
    return value_L[0]


@numba.njit(cache=True)
def _episode(effect_LA: Ints, pi_LA: Floats, helped: float, store_K3: Ints, at: int) -> int:
    """Play one episode, store stage, action and whether it ended there (1 solved, 2 not)."""
    stage = 0
    for _step in range(HORIZON):
        a = min(int((np.random.random() >= np.cumsum(pi_LA[stage])).sum()), ACTIONS - 1)
        if effect_LA[stage, a] == -1 and np.random.random() < helped:
            a = int(np.argmax(effect_LA[stage]))
        store_K3[at, 0], store_K3[at, 1], store_K3[at, 2] = stage, a, 0
        if np.random.random() >= SLIP:
            if effect_LA[stage, a] == 1:
                stage += 1
            elif effect_LA[stage, a] == -1:
                stage = 0
        at += 1
        if stage == STAGES:
            store_K3[at - 1, 2] = 1
            return at
    store_K3[at - 1, 2] = 2
    return at


@numba.njit(cache=True)
def critic(store_K3: Ints, stored: int, pi_LA: Floats, chunk: int) -> Floats:
    """Return Q of the pooled episodes, [L, A]; chunk: actions before the bootstrap by pi, 0: to the end."""
    q_LA = np.zeros((STAGES, ACTIONS))
    for _ in range(SWEEPS if chunk else 1):
        sum_LA, count_LA = np.zeros((STAGES, ACTIONS)), np.full((STAGES, ACTIONS), 1e-9)
        for i in range(stored):
            j, gain, steps = i, 0.0, 1
            while store_K3[j, 2] == 0 and (chunk == 0 or steps < chunk):
                j, steps = j + 1, steps + 1
            if store_K3[j, 2] == 1:
                gain = DISCOUNT**steps
            # An episode that ran out of time has no later value, as the horizon ends it.
            elif store_K3[j, 2] == 0:
                stage = store_K3[j + 1, 0]
                gain = DISCOUNT**steps * (pi_LA[stage] * q_LA[stage]).sum()
            sum_LA[store_K3[i, 0], store_K3[i, 1]] += gain
            count_LA[store_K3[i, 0], store_K3[i, 1]] += 1
        q_LA = sum_LA / count_LA
    return q_LA


@numba.njit(cache=True)
def practise(effect_LA: Ints, seed: int, chunk: int, sharpness: float) -> Floats:
    """Return the exact value of the policy before each round and after the last, [1 + ROUNDS].

    The policy is the clone of all episodes, weighted by exp(sharpness (Q - V)).
    """
    np.random.seed(seed)
    store_K3, stored = np.zeros((STORE, 3), dtype=np.int64), 0
    guide_LA = np.full((STAGES, ACTIONS), (1 - SKILL) / ACTIONS)
    for stage in range(STAGES):
        guide_LA[stage, int(np.argmax(effect_LA[stage]))] += SKILL
    for _ in range(DEMOS):
        stored = _episode(effect_LA, guide_LA, 0.0, store_K3, stored)
    pi_LA, found_K = np.full((STAGES, ACTIONS), 1.0 / ACTIONS), np.zeros(1 + ROUNDS)
    for turn in range(1 + ROUNDS):
        clone_LA = np.full((STAGES, ACTIONS), PRIOR)
        for i in range(stored):
            clone_LA[store_K3[i, 0], store_K3[i, 1]] += 1
        for stage in range(STAGES):
            clone_LA[stage] /= clone_LA[stage].sum()
        for _ in range(3):
            # The critic and the policy follow each other.
            q_LA = critic(store_K3, stored, clone_LA if turn == 0 else pi_LA, chunk)
            for stage in range(STAGES):
                value = (clone_LA[stage] * q_LA[stage]).sum()
                e_A = clone_LA[stage] * np.exp(np.minimum(sharpness * (q_LA[stage] - value), 30.0))
                pi_LA[stage] = e_A / e_A.sum()
        found_K[turn] = success(effect_LA, pi_LA)
        if turn < ROUNDS:
            for _ in range(TRIES):
                stored = _episode(effect_LA, pi_LA, HELP, store_K3, stored)
    return found_K
