# ruff: noqa: NPY002 (the generator that compiled code has)
"""Answers of free lengths, a clock, and PPO on whole answers or on windows that nobody waits for.

A prompt has one of 8 kinds. A token is right with a probability that the policy learns for its kind and place
modulo 4. Lengths are lognormal, and the reward is 1 with probability (share of right tokens)^2. 64 slots
decode a token each in one tick, however many are busy; training on a token takes .025 ticks.
"""

import numba
import numpy as np

from analysis.worlds.turn_games import softmax
from envs.arrays import Floats, Ints
from testbed.rng import key

KINDS, PLACES, TOKENS, SLOTS, LONGEST = 8, 4, 4, 64, 128
TRAINING = 0.025
"""Ticks per token in training, near a third of PPO's time on whole answers."""
MIDDLE, SPREAD, CRITIC, CLIP, PASSES = 16.0, 0.6, 0.1, 0.2, 2
"""Median and log standard deviation of lengths: the longest of 64 is about 3.5 times the mean."""
WHOLE, EGAE, GAE = 0, 1, 2


def ticks(seed: int, how: int, rate: float, lam: float, size: int, level: float, most: float) -> float:
    """Return the ticks until the mean probability of a right token is `level`; `most` if that is never.

    how: WHOLE answers, `size` at once; or windows of `size` tokens, at whose end the advantage assumes no
    news (EGAE) or a reward of 0 (GAE).
    """
    drawn = key(seed, f"long answers {seed}") % 2**32
    return float(_ticks(drawn, how, rate, lam, size, level, most))


@numba.njit(cache=True)
def _length() -> int:
    return min(LONGEST, max(2, int(MIDDLE * np.exp(SPREAD * np.random.randn()))))


@numba.njit(cache=True)
def _state(place: int, right: int) -> int:
    """Return the critic's bucket of a place, by powers of 2, and the share of right tokens before it."""
    return 5 * min(6, int(np.log2(place + 1))) + (int(4 * right / place) if place else 2)


@numba.njit(cache=True)
def _td_error(value_S: Floats, state_T: Ints, t: int, end: int, reward: float, unknown: bool) -> float:
    """Return the error at token t; unknown: whatever follows the last token counts as no news."""
    now = value_S[state_T[t]]
    if t < end - 1:
        return value_S[state_T[t + 1]] - now
    return 0.0 if unknown else reward - now


@numba.njit(cache=True)
def _fit(value_S: Floats, state_T: Ints, end: int, reward: float) -> None:
    """Let the critic learn from a finished answer, from all of its tokens."""
    for t in range(end):
        value_S[state_T[t]] += CRITIC * (reward - value_S[state_T[t]])


@numba.njit(cache=True)
def _add_slope(
    slope_MPA: Floats, logits_MPA: Floats, m: int, p: int, token: int, chance: float, adv: float
) -> None:
    """Add the gradient of a token's clipped objective; chance: its probability under the sampling weights."""
    pi_A = softmax(logits_MPA[m, p])
    ratio = pi_A[token] / chance
    if (adv > 0 and ratio < 1 + CLIP) or (adv < 0 and ratio > 1 - CLIP):
        slope_MPA[m, p] -= adv * ratio * pi_A
        slope_MPA[m, p, token] += adv * ratio


@numba.njit(cache=True)
def _accuracy(logits_MPA: Floats, right_MP: Ints) -> float:
    reached = 0.0
    for m in range(KINDS):
        for p in range(PLACES):
            reached += softmax(logits_MPA[m, p])[right_MP[m, p]] / (KINDS * PLACES)
    return reached


@numba.njit(cache=True)
def _ticks(seed: int, how: int, rate: float, lam: float, size: int, level: float, most: float) -> float:
    np.random.seed(seed)
    right_MP = np.random.randint(0, TOKENS, (KINDS, PLACES))
    logits_MPA = 0.5 * np.random.randn(KINDS, PLACES, TOKENS)
    value_MS = np.full((KINDS, 35), 0.1)
    slots = size if how == WHOLE else SLOTS
    window = LONGEST if how == WHOLE else size
    kind_B, length_B, at_B, good_B, first_B = np.zeros((5, slots), np.int64)
    token_BT, state_BT = np.zeros((slots, LONGEST), np.int64), np.zeros((slots, LONGEST), np.int64)
    chance_BT, adv_BT = np.zeros((slots, LONGEST)), np.zeros((slots, LONGEST))
    clock = 0.0
    while clock < most:
        busy, count = 0, 0
        for b in range(slots):
            if at_B[b] >= length_B[b]:
                kind_B[b], length_B[b], at_B[b], good_B[b] = np.random.randint(KINDS), _length(), 0, 0
            first_B[b] = at_B[b]
            end = min(length_B[b], at_B[b] + window)
            for t in range(at_B[b], end):
                pi_A = softmax(logits_MPA[kind_B[b], t % PLACES])
                token = min(TOKENS - 1, int(np.searchsorted(np.cumsum(pi_A), np.random.random())))
                state_BT[b, t], token_BT[b, t] = _state(t, good_B[b]), token
                chance_BT[b, t] = pi_A[token]
                good_B[b] += token == right_MP[kind_B[b], t % PLACES]
            busy = max(busy, end - at_B[b])
            count += end - at_B[b]
            at_B[b] = end
        total, square = 0.0, 0.0
        for b in range(slots):
            m, end = kind_B[b], at_B[b]
            done = end == length_B[b]
            reward = 1.0 if done and np.random.random() < (good_B[b] / length_B[b]) ** 2 else 0.0
            sum_ = 0.0
            for t in range(end - 1, first_B[b] - 1, -1):
                unknown = how == EGAE and not done
                sum_ = _td_error(value_MS[m], state_BT[b], t, end, reward, unknown) + lam * sum_
                adv_BT[b, t] = sum_
                total += sum_
                square += sum_ * sum_
            if done:
                _fit(value_MS[m], state_BT[b], end, reward)
        mean = total / count
        spread = np.sqrt(max(square / count - mean * mean, 1e-12))
        for _ in range(PASSES):
            slope_MPA = np.zeros_like(logits_MPA)
            for b in range(slots):
                for t in range(first_B[b], at_B[b]):
                    adv = (adv_BT[b, t] - mean) / spread
                    m, p, token = kind_B[b], t % PLACES, token_BT[b, t]
                    _add_slope(slope_MPA, logits_MPA, m, p, token, chance_BT[b, t], adv)
            logits_MPA += rate * slope_MPA / count
        clock += busy + TRAINING * count
        if _accuracy(logits_MPA, right_MP) >= level:
            return clock
    return most
