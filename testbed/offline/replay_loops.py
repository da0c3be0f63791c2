"""Compiled loops of replay control: one cell plays, stores and learns in one thread.

Table fields are read once, before the loops: inside them every access counts a reference. Random numbers
depend only on the cell's key and the number drawn so far, so a cell does not depend on its neighbors.
Settings come as a row of numbers per cell, in the order of Q_SETTINGS and ACTOR_SETTINGS.
"""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from envs.arrays import Bools, Floats, Ints
from envs.tables import Tables

Words = NDArray[np.uint64]

Q_SETTINGS = {
    "step_size": 0.1, "updates": 1.0, "epsilon": 0.1, "temperature": 0.0, "target_every": 0.0,
    "model_share": 0.0, "on_policy": 0.0, "weight_bound": 0.0, "error_bound": 0.0,
    "reset_every": 0.0,
}  # fmt: skip
"""Settings of `replay_q`, explained there, with their defaults."""
ACTOR_SETTINGS = {"critic_rate": 0.1, "actor_rate": 0.1, "replays": 0.0, "repel": 1.0, "reach": 0.0}
"""Settings of `replay_actor_critic`, explained there, with their defaults."""

MOST_TRIES = 64
"""Rejections after which an on-policy draw accepts the next step."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_STEP, _UPDATES, _EPSILON, _TEMPERATURE, _TARGET, _MODEL, _ON_POLICY = range(7)
_WEIGHT_BOUND, _ERROR_BOUND, _RESET = 7, 8, 9


@njit(cache=True, error_model="numpy", forceinline=True)
def _mix(word: np.uint64) -> np.uint64:
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@njit(cache=True, error_model="numpy", forceinline=True)
def _uniform(state_2: Words) -> float:
    """The next double in [0, 1) of a cell: SplitMix64 of (mixed key, count) (Steele, Lea & Flood 2014)."""
    state_2[1] += np.uint64(1)
    mixed = _mix(state_2[0] + state_2[1] * _GOLDEN)
    return np.float64(mixed >> np.uint64(11)) * 2.0**-53


@njit(cache=True, error_model="numpy", forceinline=True)
def _step(
    next_XK: Ints, cumulative_XK: Floats, reward_X: Floats, bonus_S: Floats, noise: int, noise_std_X: Floats,
    state_2: Words, row: int,
) -> tuple[int, float, int]:  # fmt: skip
    """Return (next state, reward with noise and bonus, index among the successors) of a pair."""
    uniform, k = _uniform(state_2), 0
    while uniform >= cumulative_XK[row, k]:
        k += 1
    following = next_XK[row, k]
    reward = reward_X[row]
    if noise == 1:
        reward = 1.0 if _uniform(state_2) < reward else 0.0
    elif noise == 2:
        # 1 - u lies in (0, 1], so the logarithm is finite.
        radius = math.sqrt(-2.0 * math.log(1.0 - _uniform(state_2)))
        reward += noise_std_X[row] * radius * math.cos(2.0 * math.pi * _uniform(state_2))
    return following, reward + bonus_S[following], k


@njit(cache=True, error_model="numpy", forceinline=True)
def _index(law_A: Floats, uniform: float) -> int:
    for a in range(law_A.shape[0] - 1):
        uniform -= law_A[a]
        if uniform < 0.0:
            return a
    return law_A.shape[0] - 1


@njit(cache=True, error_model="numpy", forceinline=True)
def _look(weight_F: Floats, index_XM: Ints, feature_XM: Floats, s: int, q_A: Floats) -> None:
    """Write Q(s, .) = phi(s, .) w to q_A."""
    for a in range(q_A.shape[0]):
        row, total = s * q_A.shape[0] + a, 0.0
        for m in range(index_XM.shape[1]):
            total += weight_F[index_XM[row, m]] * feature_XM[row, m]
        q_A[a] = total


@njit(cache=True, error_model="numpy", forceinline=True)
def _worth(q_A: Floats, temperature: float) -> float:
    """max Q, or temperature logsumexp(Q / temperature) above 0."""
    best = q_A[0]
    for a in range(1, q_A.shape[0]):
        best = max(best, q_A[a])
    if temperature <= 0.0:
        return best
    total = 0.0
    for a in range(q_A.shape[0]):
        total += math.exp((q_A[a] - best) / temperature)
    return best + temperature * math.log(total)


@njit(cache=True, error_model="numpy", forceinline=True)
def _act_dist(q_A: Floats, epsilon: float, temperature: float, law_A: Floats) -> None:
    """Write the behavior's action distribution to law_A: epsilon-greedy, or softmax(Q / temperature)."""
    best = 0
    for a in range(1, q_A.shape[0]):
        if q_A[a] > q_A[best]:
            best = a
    total = 0.0
    for a in range(q_A.shape[0]):
        greedy = temperature <= 0.0
        law_A[a] = epsilon / q_A.shape[0] if greedy else math.exp((q_A[a] - q_A[best]) / temperature)
        total += law_A[a]
    if temperature <= 0.0:
        law_A[best] += 1.0 - epsilon
        return
    for a in range(q_A.shape[0]):
        law_A[a] /= total


@njit(cache=True, error_model="numpy", forceinline=True)
def _pick(
    pair_K: Ints, last_K: Bools, filled: int, state_2: Words, hyper_K: Floats, weight_F: Floats,
    index_XM: Ints, feature_XM: Floats, q_A: Floats,
) -> int:  # fmt: skip
    """Return the storage index of a drawn step: uniform, or as exp(power _trajectory_mean) by rejection."""
    size = min(filled, pair_K.shape[0])
    place = filled - size + min(int(_uniform(state_2) * size), size - 1)
    if hyper_K[_ON_POLICY] <= 0.0:
        return place
    actions, law_A, log_pi_X = q_A.shape[0], np.zeros_like(q_A), np.zeros(index_XM.shape[0])
    for s in range(log_pi_X.shape[0] // actions):
        _look(weight_F, index_XM, feature_XM, s, q_A)
        _act_dist(q_A, hyper_K[_EPSILON], hyper_K[_TEMPERATURE], law_A)
        log_pi_X[s * actions : (s + 1) * actions] = np.log(law_A)
    for _ in range(MOST_TRIES - 1):
        mean = _trajectory_mean(pair_K, last_K, filled, place, log_pi_X)
        if _uniform(state_2) < math.exp(hyper_K[_ON_POLICY] * mean):
            return place
        place = filled - size + min(int(_uniform(state_2) * size), size - 1)
    return place


@njit(cache=True, error_model="numpy", forceinline=True)
def _trajectory_mean(pair_K: Ints, last_K: Bools, filled: int, place: int, log_pi_X: Floats) -> float:
    """Return the mean of log pi(a|s) over the stored steps of the trajectory of a step."""
    size = pair_K.shape[0]
    first, end = place, place + 1
    while first > max(0, filled - size) and not last_K[_wrapped(first - 1, size)]:
        first -= 1
    while end < filled and not last_K[_wrapped(end - 1, size)]:
        end += 1
    total = 0.0
    for at in range(first, end):
        total += log_pi_X[pair_K[_wrapped(at, size)]]
    return total / (end - first)


@njit(cache=True, error_model="numpy", forceinline=True)
def _wrapped(place: int, size: int) -> int:
    """Return place % size, without a division if none is needed."""
    return place if place < size else place % size


@njit(cache=True, error_model="numpy")
def _imagined(model_XK: Ints, guess: int, visits: int, state_2: Words, next_XK: Ints) -> tuple[int, bool]:
    """Draw a successor of the pair from its counts; the last column counts ends of episodes."""
    left, k = int(_uniform(state_2) * visits), 0
    while left >= model_XK[guess, k]:
        left -= model_XK[guess, k]
        k += 1
    going = k < model_XK.shape[1] - 1
    return (next_XK[guess, k] if going else 0), going


@njit(cache=True, error_model="numpy", forceinline=True)
def _bounded(error: float, bound: float) -> float:
    """Return the TD error clipped to the bound; 0 for no bound."""
    return max(-bound, min(bound, error)) if bound > 0.0 else error


@njit(cache=True, error_model="numpy", forceinline=True)
def _descend(
    weight_F: Floats,
    row_N: Ints,
    error_N: Floats,
    index_XM: Ints,
    feature_XM: Floats,
    rate: float,
    bound: float,
) -> None:
    """Do w += rate mean_n error phi, then rescale to norm <= bound (0: none)."""
    for n in range(row_N.shape[0]):
        for m in range(index_XM.shape[1]):
            move = rate * error_N[n] / row_N.shape[0] * feature_XM[row_N[n], m]
            weight_F[index_XM[row_N[n], m]] += move
    if bound > 0.0:
        square = (weight_F**2).sum()
        if square > bound**2:
            weight_F *= bound / math.sqrt(square)


@njit(cache=True, error_model="numpy")
def _play_q(
    tables: Tables, pair_K: Ints, reward_K: Floats, next_K: Ints, going_K: Bools, last_K: Bools, filled: int,
    hyper_K: Floats, index_XM: Ints, feature_XM: Floats, weight_F: Floats, model_XK: Ints,
    model_reward_X: Floats, key: np.uint64, steps: int, every: int, batch: int, found_KF: Floats,
    earned_K: Floats,
) -> None:  # fmt: skip
    """Run one cell of `q_loop`; writes weights and rewards earned."""
    next_XK, cumulative_XK, start_S = tables.next_XK, tables.cumulative_XK, tables.start_S
    terminal_S, bonus_S, reward_X = tables.terminal_S, tables.bonus_S, tables.reward_X
    noise, noise_std_X, horizon, discount = tables.noise, tables.noise_std_X, tables.horizon, tables.discount
    actions, ended = index_XM.shape[0] // bonus_S.shape[0], model_XK.shape[1] - 1
    state_2 = np.array([_mix(key), np.uint64(0)])
    # Without a target network both are one array, so the target follows at every update.
    target_F = weight_F.copy() if hyper_K[_TARGET] >= 1.0 else weight_F
    initial_F, row_N, error_N = weight_F.copy(), np.zeros(batch, np.int64), np.zeros(batch)
    q_A, law_A = np.zeros(actions), np.zeros(actions)
    s, time, credit, done = _index(start_S, _uniform(state_2)), 0, 0.0, 0
    for step in range(steps):
        _look(weight_F, index_XM, feature_XM, s, q_A)
        _act_dist(q_A, hyper_K[_EPSILON], hyper_K[_TEMPERATURE], law_A)
        row = s * actions + _index(law_A, _uniform(state_2))
        following, reward, k = _step(
            next_XK, cumulative_XK, reward_X, bonus_S, noise, noise_std_X, state_2, row
        )
        going, time = not terminal_S[following], time + 1
        last = not going or time == horizon
        place = _wrapped(filled, pair_K.shape[0])
        pair_K[place], reward_K[place], next_K[place] = row, reward, following
        going_K[place], last_K[place] = going, last
        filled += 1
        model_XK[row, k if going else ended] += 1
        model_reward_X[row] += reward
        earned_K[min(step // every, earned_K.shape[0] - 1)] += reward
        s, time = (_index(start_S, _uniform(state_2)), 0) if last else (following, time)
        credit += hyper_K[_UPDATES]
        while credit >= 1.0:
            if hyper_K[_RESET] >= 1.0 and done > 0 and done % int(hyper_K[_RESET]) == 0:
                weight_F[:], target_F[:] = initial_F, initial_F
            if hyper_K[_TARGET] >= 1.0 and done % int(hyper_K[_TARGET]) == 0:
                target_F[:] = weight_F
            credit, done = credit - 1.0, done + 1
            for n in range(batch):
                place = _pick(pair_K, last_K, filled, state_2, hyper_K, weight_F, index_XM, feature_XM, q_A)
                at = _wrapped(place, pair_K.shape[0])
                row, gain, then, going = pair_K[at], reward_K[at], next_K[at], going_K[at]
                if hyper_K[_MODEL] > 0.0 and _uniform(state_2) < hyper_K[_MODEL]:
                    _look(weight_F, index_XM, feature_XM, row // actions, q_A)
                    _act_dist(q_A, 0.0, hyper_K[_TEMPERATURE], law_A)
                    guess = row // actions * actions + _index(law_A, _uniform(state_2))
                    visits = model_XK[guess].sum()
                    if visits > 0:
                        row, gain = guess, model_reward_X[guess] / visits
                        then, going = _imagined(model_XK, guess, visits, state_2, next_XK)
                if going:
                    _look(target_F, index_XM, feature_XM, then, q_A)
                    gain += discount * _worth(q_A, hyper_K[_TEMPERATURE])
                _look(weight_F, index_XM, feature_XM, row // actions, q_A)
                row_N[n], error_N[n] = row, _bounded(gain - q_A[row % actions], hyper_K[_ERROR_BOUND])
            _descend(weight_F, row_N, error_N, index_XM, feature_XM, hyper_K[_STEP], hyper_K[_WEIGHT_BOUND])
        if (step + 1) % every == 0:
            found_KF[step // every] = weight_F


@njit(cache=True, error_model="numpy")
def _play_actor(
    tables: Tables, pair_K: Ints, reward_K: Floats, next_K: Ints, going_K: Bools, hyper_K: Floats,
    logits_SA: Floats, value_S: Floats, key: np.uint64, steps: int, every: int,
    found_KSA: Floats, found_KS: Floats,
) -> None:  # fmt: skip
    """Run one cell of `actor_loop`; writes logits and values."""
    # Read once: inside the loop every access of a field counts a reference.
    next_XK, cumulative_XK, start_S = tables.next_XK, tables.cumulative_XK, tables.start_S
    terminal_S, bonus_S, reward_X = tables.terminal_S, tables.bonus_S, tables.reward_X
    noise, noise_std_X, horizon, discount = tables.noise, tables.noise_std_X, tables.horizon, tables.discount
    critic_rate, actor_rate, replays, repel, reach = hyper_K
    actions = logits_SA.shape[1]
    law_A, state_2 = np.zeros(actions), np.array([_mix(key), np.uint64(0)])
    s, time, credit = _index(start_S, _uniform(state_2)), 0, 0.0
    for step in range(steps):
        _act_dist(logits_SA[s], 0.0, 1.0, law_A)
        row = s * actions + _index(law_A, _uniform(state_2))
        following, reward, _ = _step(
            next_XK, cumulative_XK, reward_X, bonus_S, noise, noise_std_X, state_2, row
        )
        place, size = step % pair_K.shape[0], min(step + 1, pair_K.shape[0])
        pair_K[place], reward_K[place], next_K[place] = row, reward, following
        going_K[place] = not terminal_S[following]
        time += 1
        s = following
        if not going_K[place] or time == horizon:
            s, time = _index(start_S, _uniform(state_2)), 0
        credit += replays
        fresh = True
        while fresh or credit >= 1.0:
            if not fresh:
                credit -= 1.0
                place = min(int(_uniform(state_2) * size), size - 1)
            here, taken = pair_K[place] // actions, pair_K[place] % actions
            _act_dist(logits_SA[here], 0.0, 1.0, law_A)
            if fresh or law_A[taken] >= reach:
                ahead = value_S[next_K[place]] if going_K[place] else 0.0
                error = reward_K[place] + discount * ahead - value_S[here]
                value_S[here] += critic_rate * error
                push = actor_rate * error * (1.0 if fresh or error > 0.0 else repel)
                for a in range(actions):
                    logits_SA[here, a] += push * ((1.0 if a == taken else 0.0) - law_A[a])
            fresh = False
        if (step + 1) % every == 0:
            found_KSA[step // every] = logits_SA
            found_KS[step // every] = value_S


@njit(cache=True, error_model="numpy", nogil=True)
def q_loop(
    tables: Tables, pair_RK: Ints, reward_RK: Floats, next_RK: Ints, going_RK: Bools, last_RK: Bools,
    filled_R: Ints, hyper_RK: Floats, index_XM: Ints, feature_XM: Floats, weight_RF: Floats, model_RXK: Ints,
    model_reward_RX: Floats, key_R: Words, steps: int, every: int, batch: int,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Weights [R, K, F] and rewards earned [R, K] at every `every`-th step."""
    found_RKF = np.zeros((len(key_R), steps // every, weight_RF.shape[1]))
    earned_RK = np.zeros((len(key_R), steps // every))
    for r in range(len(key_R)):
        _play_q(
            tables, pair_RK[r], reward_RK[r], next_RK[r], going_RK[r], last_RK[r], filled_R[r], hyper_RK[r],
            index_XM, feature_XM, weight_RF[r], model_RXK[r], model_reward_RX[r], key_R[r], steps, every,
            batch, found_RKF[r], earned_RK[r],
        )  # fmt: skip
    return found_RKF, earned_RK


@njit(cache=True, error_model="numpy", nogil=True)
def actor_loop(
    tables: Tables, capacity: int, hyper_RK: Floats, states: int, actions: int, key_R: Words,
    steps: int, every: int,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Logits [R, K, S, A] and values [R, K, S] at every `every`-th step."""
    found_RKSA = np.zeros((len(key_R), steps // every, states, actions))
    found_RKS = np.zeros((len(key_R), steps // every, states))
    for r in range(len(key_R)):
        _play_actor(
            tables, np.zeros(capacity, np.int64), np.zeros(capacity), np.zeros(capacity, np.int64),
            np.zeros(capacity, np.bool_), hyper_RK[r], np.zeros((states, actions)), np.zeros(states),
            key_R[r], steps, every, found_RKSA[r], found_RKS[r],
        )  # fmt: skip
    return found_RKSA, found_RKS
