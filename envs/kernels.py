"""Compiled loops over episodes, driven by a counter-based random stream.

Every random number depends only on (key, token t, sequence b, step, block). No generator state is shared, so
any number of threads, order and packing of replicas gives the same bits.
"""

import math

import numpy as np
from numba import njit, prange

from envs.arrays import Bools, Floats, Ints, Keys
from envs.tables import Tables

# Multipliers and Weyl constants: Salmon et al. (2011), "Parallel random numbers: as easy as 1, 2, 3".
_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = np.uint64(0x9E3779B9)
_WEYL_1 = np.uint64(0xBB67AE85)
_LOW_WORD = np.uint64(0xFFFFFFFF)
_WORD_BITS = np.uint64(32)
_DROP_BITS = np.uint64(11)
_TWO_TO_MINUS_53 = 2.0**-53

# Counter word 3 is the purpose of a block. Policies and transitions share block 0; reward noise has another.
_ACTION_AND_TRANSITION = 0
_REWARD_NOISE = 1

_LINEAR_WIDTH = 16


@njit(cache=True, forceinline=True)
def philox(
    word_0: int, word_1: int, word_2: int, word_3: int, key: int
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Philox-4x32-10: four 32-bit words (held in uint64) from four counter words and a 64-bit key."""
    c0, c1 = np.uint64(word_0) & _LOW_WORD, np.uint64(word_1) & _LOW_WORD
    c2, c3 = np.uint64(word_2) & _LOW_WORD, np.uint64(word_3) & _LOW_WORD
    k0, k1 = np.uint64(key) & _LOW_WORD, np.uint64(key) >> _WORD_BITS
    for _ in range(10):
        product_0 = _MULTIPLIER_0 * c0
        product_1 = _MULTIPLIER_1 * c2
        c0 = (product_1 >> _WORD_BITS) ^ c1 ^ k0
        c2 = (product_0 >> _WORD_BITS) ^ c3 ^ k1
        c1 = product_1 & _LOW_WORD
        c3 = product_0 & _LOW_WORD
        k0 = (k0 + _WEYL_0) & _LOW_WORD
        k1 = (k1 + _WEYL_1) & _LOW_WORD
    return c0, c1, c2, c3


@njit(cache=True, forceinline=True)
def _pair(t: int, b: int, step: int, block: int, key: int) -> tuple[float, float]:
    """Two doubles in [0, 1), 53 bits each, of counter (t, b, step, block); the first word is the high one."""
    w0, w1, w2, w3 = philox(t, b, step, block, key)
    first = np.float64(((w0 << _WORD_BITS) | w1) >> _DROP_BITS) * _TWO_TO_MINUS_53
    second = np.float64(((w2 << _WORD_BITS) | w3) >> _DROP_BITS) * _TWO_TO_MINUS_53
    return first, second


@njit(cache=True, parallel=True)
def uniforms(key_R: Keys, step: int, sequences: int, tokens: int) -> Floats:
    """[R, B, T] doubles in [0, 1): the first double of counter (t, b, step, 0) under each replica's key."""
    replicas = key_R.shape[0]
    out_RBT = np.empty((replicas, sequences, tokens))
    for i in prange(replicas * sequences):
        r, b = i // sequences, i % sequences
        for t in range(tokens):
            out_RBT[r, b, t] = _pair(t, b, step, _ACTION_AND_TRANSITION, key_R[r])[0]
    return out_RBT


@njit(cache=True, forceinline=True)
def _draw(cumulative_xK: Floats, row: int, uniform: float) -> int:
    """Draw an index by inverse CDF: the number of the row's `tables.running_sums` that are <= uniform."""
    width = cumulative_xK.shape[1]
    if width <= _LINEAR_WIDTH:
        # Without branches: one mispredicted jump costs more than counting a short row to its end.
        index = 0
        for k in range(width):
            index += uniform >= cumulative_xK[row, k]
        return index
    low, high = 0, width - 1
    while low < high:
        middle = (low + high) // 2
        if uniform < cumulative_xK[row, middle]:
            high = middle
        else:
            low = middle + 1
    return low


@njit(cache=True, forceinline=True)
def _noisy_reward(tables: Tables, row: int, t: int, b: int, step: int, key: int) -> float:
    """Reward of a state-action row without bonus: its mean, Bernoulli, or normal by Box-Muller."""
    mean = tables.reward_X[row]
    if tables.noise == 0:
        return mean
    first, second = _pair(t, b, step, _REWARD_NOISE, key)
    if tables.noise == 1:
        return 1.0 if first < mean else 0.0
    # Doubles of the stream include 0 and exclude 1, so that 1 - first has a logarithm.
    radius = math.sqrt(-2.0 * math.log(1.0 - first))
    return mean + tables.noise_std_X[row] * radius * math.cos(2.0 * math.pi * second)


def simulate(
    tables: Tables,
    cumulative_XA: Floats,
    start_RN: Ints,
    group: int,
    key_R: Keys,
    step: int,
    version_RBT: Ints,
) -> tuple[Ints, Ints, Floats, Bools]:
    """(state, action, reward, mask), each [R, B, T] with B = N * group; all 0 after an episode's end.

    Row (r * V + v) * S + s of `cumulative_XA` holds the running sums of replica r's policy of version v in
    state s; version_RBT selects the version for the action of each step.
    """
    shape = (start_RN.shape[0], start_RN.shape[1] * group, tables.horizon)
    # Numpy takes zeros from the system, in large pages: episodes that end early cost no writes.
    state_RBT, action_RBT = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    reward_RBT, mask_RBT = np.zeros(shape, np.float64), np.zeros(shape, np.bool_)
    _simulate(
        tables, cumulative_XA, start_RN, group, key_R, step, version_RBT,
        state_RBT, action_RBT, reward_RBT, mask_RBT,
    )  # fmt: skip
    return state_RBT, action_RBT, reward_RBT, mask_RBT


@njit(cache=True, parallel=True)
def _simulate(
    tables: Tables,
    cumulative_XA: Floats,
    start_RN: Ints,
    group: int,
    key_R: Keys,
    step: int,
    version_RBT: Ints,
    state_RBT: Ints,
    action_RBT: Ints,
    reward_RBT: Floats,
    mask_RBT: Bools,
) -> None:
    """Write the episodes of `simulate` to arrays of zeros."""
    states, actions = tables.bonus_S.shape[0], cumulative_XA.shape[1]
    replicas, sequences = state_RBT.shape[0], state_RBT.shape[1]
    versions = cumulative_XA.shape[0] // (replicas * states)
    for i in prange(replicas * sequences):
        r, b = i // sequences, i % sequences
        s = start_RN[r, b // group]
        for t in range(tables.horizon):
            first, second = _pair(t, b, step, _ACTION_AND_TRANSITION, key_R[r])
            policy = r * versions + version_RBT[r, b, t]
            a = _draw(cumulative_XA, policy * states + s, first)
            row = s * actions + a
            following = tables.next_XK[row, _draw(tables.cumulative_XK, row, second)]
            state_RBT[r, b, t], action_RBT[r, b, t] = s, a
            reward_RBT[r, b, t] = _noisy_reward(tables, row, t, b, step, key_R[r]) + tables.bonus_S[following]
            mask_RBT[r, b, t] = True
            if tables.terminal_S[following]:
                break
            s = following


@njit(cache=True, forceinline=True)
def _log_normalizer(logits_RSA: Floats, r: int, s: int) -> float:
    """log sum_a exp(logits[r, s, a]), shifted by the row's largest logit."""
    actions = logits_RSA.shape[2]
    largest = logits_RSA[r, s, 0]
    for a in range(1, actions):
        largest = max(largest, logits_RSA[r, s, a])
    total = 0.0
    for a in range(actions):
        total += math.exp(logits_RSA[r, s, a] - largest)
    return largest + math.log(total)


def gather_logp(logits_RSA: Floats, state_RBT: Ints, action_RBT: Ints) -> Floats:
    """log softmax(logits)[r, state, action], [R, B, T]; each row is normalized at its first visit.

    Padded positions hold state 0 and action 0, so they get that row's value; mask them afterwards.
    """
    run = _gather_rows if len(state_RBT) == 1 else _gather_rows_in_parallel
    logp_RBT: Floats = run(logits_RSA, state_RBT, action_RBT)
    return logp_RBT


@njit(cache=True, parallel=True)
def _gather_rows_in_parallel(logits_RSA: Floats, state_RBT: Ints, action_RBT: Ints) -> Floats:
    logp_RBT = np.empty(state_RBT.shape)
    for r in prange(len(state_RBT)):
        _gather(logits_RSA, state_RBT, action_RBT, r, logp_RBT)
    return logp_RBT


@njit(cache=True)
def _gather_rows(logits_RSA: Floats, state_RBT: Ints, action_RBT: Ints) -> Floats:
    """As in parallel; waking threads for one replica takes much longer than its sums."""
    logp_RBT = np.empty(state_RBT.shape)
    for r in range(len(state_RBT)):
        _gather(logits_RSA, state_RBT, action_RBT, r, logp_RBT)
    return logp_RBT


@njit(cache=True)
def _gather(logits_RSA: Floats, state_RBT: Ints, action_RBT: Ints, r: int, logp_RBT: Floats) -> None:
    _, sequences, tokens = state_RBT.shape
    normalizer_S = np.zeros(logits_RSA.shape[1])
    visited_S = np.zeros(logits_RSA.shape[1], np.bool_)
    for b in range(sequences):
        for t in range(tokens):
            s = state_RBT[r, b, t]
            if not visited_S[s]:
                normalizer_S[s] = _log_normalizer(logits_RSA, r, s)
                visited_S[s] = True
            logp_RBT[r, b, t] = logits_RSA[r, s, action_RBT[r, b, t]] - normalizer_S[s]


def scatter_score(state_RBT: Ints, action_RBT: Ints, weight_RBT: Floats, pi_RSA: Floats) -> Floats:
    """sum_{b,t} weight * (onehot(action) - pi[state]), [R, S, A]: d(sum weight * log pi) / dlogits.

    Give padded positions weight 0. One thread sums each replica in (b, t) order.
    """
    run = _scatter_rows if len(state_RBT) == 1 else _scatter_rows_in_parallel
    grad_RSA: Floats = run(state_RBT, action_RBT, weight_RBT, pi_RSA)
    return grad_RSA


@njit(cache=True, parallel=True)
def _scatter_rows_in_parallel(
    state_RBT: Ints, action_RBT: Ints, weight_RBT: Floats, pi_RSA: Floats
) -> Floats:
    grad_RSA = np.zeros(pi_RSA.shape)
    for r in prange(len(state_RBT)):
        _scatter(state_RBT, action_RBT, weight_RBT, pi_RSA, r, grad_RSA)
    return grad_RSA


@njit(cache=True)
def _scatter_rows(state_RBT: Ints, action_RBT: Ints, weight_RBT: Floats, pi_RSA: Floats) -> Floats:
    grad_RSA = np.zeros(pi_RSA.shape)
    for r in range(len(state_RBT)):
        _scatter(state_RBT, action_RBT, weight_RBT, pi_RSA, r, grad_RSA)
    return grad_RSA


@njit(cache=True)
def _scatter(
    state_RBT: Ints, action_RBT: Ints, weight_RBT: Floats, pi_RSA: Floats, r: int, grad_RSA: Floats
) -> None:
    _, sequences, tokens = state_RBT.shape
    states, actions = pi_RSA.shape[1], pi_RSA.shape[2]
    total_S = np.zeros(states)
    for b in range(sequences):
        for t in range(tokens):
            weight = weight_RBT[r, b, t]
            total_S[state_RBT[r, b, t]] += weight
            grad_RSA[r, state_RBT[r, b, t], action_RBT[r, b, t]] += weight
    # Every visit subtracts pi: once for their summed weight spares A terms a token.
    for s in range(states):
        if total_S[s] != 0.0:
            for a in range(actions):
                grad_RSA[r, s, a] -= total_S[s] * pi_RSA[r, s, a]
