# ruff: noqa: NPY002 (the generator that compiled code has)
"""Talks of 8 turns with a reward at the end, and tabular learners: reward alone, PPO, utterance critics.

A talk is alive until a wrong utterance kills it. From then on it visits other states, but nothing tells which
these are before the end, where a living talk earns 1. An utterance is two tokens of four, so there are 16;
half of them kill, drawn for every state. A talk continues in a random state of the next turn, so that no
single talk can be memorized.
"""

import numba
import numpy as np

from envs.arrays import Floats, Ints
from testbed.rng import generator

TURNS, ALIVE, TOKENS, SLIP = 8, 6, 4, 0.02
"""Turns; states of a living talk in each, and as many of a dead one; probability to be killed anyway."""
STATES, UTTERANCES = 2 * ALIVE, TOKENS**2
BATCH, CLIP, LAMBDA, POLYAK, MINIBATCH, STORE = 16, 0.2, 0.95, 0.3, 64, 65_536
REINFORCE, PPO, REPLAYED, ON_POLICY, CONVERGED = range(5)
"""Learners: the reward alone; a critic of tokens; a critic of utterances with a replay of talks, and without;
one that is fitted to all stored talks until convergence."""


def game(seed: int) -> Ints:
    """Return 1 for utterances that kill, [turn, state, utterance]; states from ALIVE on are dead already."""
    rng = generator(seed, "turn game")
    kills_HSU = np.ones((TURNS, STATES, UTTERANCES), dtype=np.int64)
    for turn, state in np.ndindex(TURNS, ALIVE):
        kills_HSU[turn, state, rng.permutation(UTTERANCES)[UTTERANCES // 2 :]] = 0
    return kills_HSU


@numba.njit(cache=True)
def softmax(logit_A: Floats) -> Floats:
    """Return probabilities [A], compiled."""
    e_A = np.exp(logit_A - logit_A.max())
    return e_A / e_A.sum()


@numba.njit(cache=True)
def _draw(p_A: Floats) -> int:
    at, left = 0, np.random.random()
    while at < len(p_A) - 1 and left >= p_A[at]:
        left -= p_A[at]
        at += 1
    return at


@numba.njit(cache=True)
def success(kills_HSU: Ints, first_HSA: Floats, second_HSAA: Floats) -> float:
    """Return the exact probability that a talk from a random living state is alive at the end."""
    value_S = np.zeros(STATES)
    value_S[:ALIVE] = 1.0
    for turn in range(TURNS - 1, -1, -1):
        new_S = np.zeros(STATES)
        for state in range(ALIVE):
            first_A = softmax(first_HSA[turn, state])
            for a in range(TOKENS):
                second_A = softmax(second_HSAA[turn, state, a])
                for b in range(TOKENS):
                    lives = (1 - SLIP) * (1 - kills_HSU[turn, state, a * TOKENS + b])
                    new_S[state] += first_A[a] * second_A[b] * lives * value_S[:ALIVE].mean()
        value_S = new_S
    return value_S[:ALIVE].mean()


@numba.njit(cache=True)
def _hold_talks(
    kills_HSU: Ints, first_HSA: Floats, second_HSAA: Floats, state_BH: Ints, utterance_BH: Ints,
    chance_BH2: Floats, store_K4: Ints, stored: int,
) -> int:  # fmt: skip
    """Fill a batch of talks in place, store them, and return the number of stored utterances."""
    for i in range(BATCH):
        state_BH[i, 0] = np.random.randint(ALIVE)
        for turn in range(TURNS):
            state = state_BH[i, turn]
            first_A = softmax(first_HSA[turn, state])
            a = _draw(first_A)
            second_A = softmax(second_HSAA[turn, state, a])
            b = _draw(second_A)
            to = np.random.randint(ALIVE)
            if kills_HSU[turn, state, a * TOKENS + b] or np.random.random() < SLIP:
                to += ALIVE
            utterance_BH[i, turn], state_BH[i, turn + 1] = a * TOKENS + b, to
            chance_BH2[i, turn, 0], chance_BH2[i, turn, 1] = first_A[a], second_A[b]
            store_K4[stored % STORE] = np.array([turn, state, a * TOKENS + b, to])
            stored += 1
    return stored


@numba.njit(cache=True)
def _gae(
    value_HSK: Floats, state_BH: Ints, utterance_BH: Ints, reward_B: Floats, critic_rate: float
) -> Floats:
    """Return advantages of tokens, GAE with values of states and of first tokens; then move the values."""
    adv_BH2 = np.zeros((BATCH, TURNS, 2))
    for i in range(BATCH):
        ahead, after = 0.0, reward_B[i]
        for turn in range(TURNS - 1, -1, -1):
            state, a = state_BH[i, turn], utterance_BH[i, turn] // TOKENS
            for place, column in ((1, 1 + a), (0, 0)):
                here = value_HSK[turn, state, column]
                ahead = after - here + LAMBDA * ahead
                adv_BH2[i, turn, place] = ahead
                after = here
    for i in range(BATCH):
        for turn in range(TURNS):
            state, a = state_BH[i, turn], utterance_BH[i, turn] // TOKENS
            value_HSK[turn, state, 0] += critic_rate * adv_BH2[i, turn, 0]
            value_HSK[turn, state, 1 + a] += critic_rate * adv_BH2[i, turn, 1]
    return adv_BH2


@numba.njit(cache=True)
def _chances(first_HSA: Floats, second_HSAA: Floats) -> Floats:
    """Return the policy's distribution of utterances, [turn, state, utterance]."""
    pi_HSU = np.empty((TURNS, STATES, UTTERANCES))
    for turn in range(TURNS):
        for state in range(STATES):
            first_A = softmax(first_HSA[turn, state])
            for a in range(TOKENS):
                second_A = softmax(second_HSAA[turn, state, a])
                pi_HSU[turn, state, a * TOKENS : (a + 1) * TOKENS] = first_A[a] * second_A
    return pi_HSU


@numba.njit(cache=True)
def _fit_utterances(
    q_HSU: Floats, v_HS: Floats, q_slow_HSU: Floats, v_slow_HS: Floats, pi_HSU: Floats, store_K4: Ints,
    low: int, stored: int, critic_rate: float, updates: int,
) -> None:  # fmt: skip
    """Move Q and V of utterances, and their slow targets, in place on draws of the store from `low` on."""
    for _ in range(updates):
        for _ in range(MINIBATCH):
            turn, state, u, to = store_K4[np.random.randint(low, stored) % STORE]
            ahead = v_slow_HS[turn + 1, to]
            if turn == TURNS - 1:
                ahead = 1.0 if to < ALIVE else 0.0
            q_HSU[turn, state, u] += critic_rate * (ahead - q_HSU[turn, state, u])
            w = _draw(pi_HSU[turn, state])
            v_HS[turn, state] += critic_rate * (q_slow_HSU[turn, state, w] - v_HS[turn, state])
        q_slow_HSU += POLYAK * (q_HSU - q_slow_HSU)
        v_slow_HS += POLYAK * (v_HS - v_slow_HS)


@numba.njit(cache=True)
def _solve_utterances(q_HSU: Floats, v_HS: Floats, pi_HSU: Floats, seen_HSUT: Floats) -> None:
    """Set Q and V in place to the limit of updates on all stored utterances; Q of unseen ones stays 0.

    seen_HSUT: how often an utterance led from a state to another.
    """
    for turn in range(TURNS - 1, -1, -1):
        for state in range(STATES):
            v_HS[turn, state] = 0.0
            for u in range(UTTERANCES):
                count = seen_HSUT[turn, state, u].sum()
                if count > 0:
                    ahead = 0.0
                    for to in range(STATES):
                        after = v_HS[turn + 1, to] if turn < TURNS - 1 else 1.0 * (to < ALIVE)
                        ahead += seen_HSUT[turn, state, u, to] * after
                    q_HSU[turn, state, u] = ahead / count
                    v_HS[turn, state] += pi_HSU[turn, state, u] * q_HSU[turn, state, u]


@numba.njit(cache=True)
def _ascend(
    first_HSA: Floats, second_HSAA: Floats, state_BH: Ints, utterance_BH: Ints, chance_BH2: Floats,
    adv_BH2: Floats, rate: float, clip: bool,
) -> None:  # fmt: skip
    """Take one step of the batch's policy gradient in place, with PPO's clip at .2 where `clip`."""
    pull_HSA, pull_HSAA = np.zeros_like(first_HSA), np.zeros_like(second_HSAA)
    for i in range(BATCH):
        for turn in range(TURNS):
            state, u = state_BH[i, turn], utterance_BH[i, turn]
            a, b = u // TOKENS, u % TOKENS
            for place in range(2):
                logit_A = first_HSA[turn, state] if place == 0 else second_HSAA[turn, state, a]
                pi_A, token = softmax(logit_A), a if place == 0 else b
                ratio, weight = pi_A[token] / chance_BH2[i, turn, place], adv_BH2[i, turn, place]
                cut = (weight > 0 and ratio > 1 + CLIP) or (weight < 0 and ratio < 1 - CLIP)
                weight *= 0.0 if clip and cut else ratio / BATCH
                move_A = -weight * pi_A
                move_A[token] += weight
                if place == 0:
                    pull_HSA[turn, state] += move_A
                else:
                    pull_HSAA[turn, state, a] += move_A
    first_HSA += rate * pull_HSA
    second_HSAA += rate * pull_HSAA


@numba.njit(cache=True)
def talks_to(
    kills_HSU: Ints, seed: int, learner: int, rate: float, critic_rate: float, updates: int, wanted: float,
    most: int,
) -> int:  # fmt: skip
    """Return the talks that a learner needs until its exact success is `wanted`, `most` if that is never.

    A batch is 16 talks. PPO: GAE over tokens with values of states and of first tokens, two passes, clip .2.
    Utterance critics: Q and V with targets that follow by .3, `updates` per batch on 64 utterances each of
    the store (without replay: of the batch), or until convergence; tokens are moved by Q - V of it.
    """
    np.random.seed(seed)
    first_HSA = np.zeros((TURNS, STATES, TOKENS))
    second_HSAA = np.zeros((TURNS, STATES, TOKENS, TOKENS))
    value_HSK = np.zeros((TURNS + 1, STATES, TOKENS + 1))  # of a state, and after each first token
    q_HSU, v_HS = np.zeros((TURNS, STATES, UTTERANCES)), np.zeros((TURNS + 1, STATES))
    q_slow_HSU, v_slow_HS = q_HSU.copy(), v_HS.copy()
    store_K4, stored = np.zeros((STORE, 4), np.int64), 0
    seen_HSUT = np.zeros((TURNS, STATES, UTTERANCES, STATES))
    state_BH, utterance_BH = np.zeros((BATCH, TURNS + 1), np.int64), np.zeros((BATCH, TURNS), np.int64)
    chance_BH2 = np.zeros((BATCH, TURNS, 2))
    for batch in range(most // BATCH):
        # The exact success costs about as much as a batch, so every second one is measured.
        if batch % 2 == 0 and success(kills_HSU, first_HSA, second_HSAA) >= wanted:
            return batch * BATCH
        begun = stored
        stored = _hold_talks(
            kills_HSU, first_HSA, second_HSAA, state_BH, utterance_BH, chance_BH2, store_K4, stored
        )
        reward_B = np.where(state_BH[:, TURNS] < ALIVE, 1.0, 0.0)
        adv_BH2 = np.zeros((BATCH, TURNS, 2))
        if learner == REINFORCE:
            for i in range(BATCH):
                adv_BH2[i] = reward_B[i] - reward_B.mean()
        elif learner == PPO:
            adv_BH2 = _gae(value_HSK, state_BH, utterance_BH, reward_B, critic_rate)
        elif learner == CONVERGED:
            for turn, state, u, to in store_K4[begun:stored]:
                seen_HSUT[turn, state, u, to] += 1
            _solve_utterances(q_HSU, v_HS, _chances(first_HSA, second_HSAA), seen_HSUT)
        else:
            low = max(0, stored - STORE) if learner == REPLAYED else begun
            _fit_utterances(
                q_HSU, v_HS, q_slow_HSU, v_slow_HS, _chances(first_HSA, second_HSAA),
                store_K4, low, stored, critic_rate, updates,
            )  # fmt: skip
        if learner >= REPLAYED:
            for i in range(BATCH):
                for turn in range(TURNS):
                    state = state_BH[i, turn]
                    adv_BH2[i, turn] = q_HSU[turn, state, utterance_BH[i, turn]] - v_HS[turn, state]
        for _ in range(2 if learner == PPO else 1):
            _ascend(first_HSA, second_HSAA, state_BH, utterance_BH, chance_BH2, adv_BH2, rate, learner == PPO)
    return most
