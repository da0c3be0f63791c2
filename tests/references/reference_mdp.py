"""Finite MDPs the slow way: every episode is written down, and everything is a sum over the list.

Independent derivation: plain Python and numpy on a `Model` of bare arrays, nothing imported from the project.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Model:
    """The bare definition of a world; `noise_variance` [S, A] is the variance that reward noise adds."""

    transition: np.ndarray
    reward: np.ndarray
    start: np.ndarray
    terminal: np.ndarray
    bonus: np.ndarray
    horizon: int
    discount: float
    noise_variance: np.ndarray


@dataclass(frozen=True)
class Episode:
    """One possible episode: its steps (s, a, s'), and the part of its probability that no policy controls."""

    steps: tuple[tuple[int, int, int], ...]
    chance: float

    def mass(self, policy: np.ndarray) -> float:
        return self.chance * math.prod(policy[s, a] for s, a, _ in self.steps)

    def ratios(self, pi: np.ndarray, mu: np.ndarray) -> list[float]:
        """pi/mu after 1, 2, ... steps."""
        return list(itertools.accumulate((pi[s, a] / mu[s, a] for s, a, _ in self.steps), lambda x, y: x * y))


def episodes(model: Model) -> Iterator[Episode]:
    """Every episode that some policy can produce."""

    def extend(state: int, steps: tuple[tuple[int, int, int], ...], chance: float) -> Iterator[Episode]:
        if len(steps) == model.horizon or (steps and model.terminal[state]):
            yield Episode(steps, chance)
            return
        for action in range(model.reward.shape[1]):
            for following, probability in enumerate(model.transition[state, action]):
                if probability > 0:
                    step = (state, action, following)
                    yield from extend(following, (*steps, step), chance * probability)

    for state, probability in enumerate(model.start):
        if probability > 0:
            yield from extend(state, (), probability)


def mean_return(model: Model, episode: Episode) -> float:
    return sum(
        model.discount**t * (model.reward[s, a] + model.bonus[following])
        for t, (s, a, following) in enumerate(episode.steps)
    )


def value(model: Model, pi: np.ndarray) -> float:
    return sum(e.mass(pi) * mean_return(model, e) for e in episodes(model))


def variance(model: Model, pi: np.ndarray) -> float:
    square = 0.0
    for e in episodes(model):
        noise = sum(
            model.discount ** (2 * t) * model.noise_variance[s, a] for t, (s, a, _) in enumerate(e.steps)
        )
        square += e.mass(pi) * (mean_return(model, e) ** 2 + noise)
    return square - value(model, pi) ** 2


def gradient(model: Model, pi: np.ndarray) -> np.ndarray:
    """E[return * sum_t grad log pi(a_t | s_t)]: the likelihood-ratio form, no value function in it."""
    total = np.zeros_like(pi)
    for e in episodes(model):
        score = np.zeros_like(pi)
        for s, a, _ in e.steps:
            score[s] -= pi[s]
            score[s, a] += 1.0
        total += e.mass(pi) * mean_return(model, e) * score
    return total


def occupancy(model: Model, pi: np.ndarray) -> np.ndarray:
    total = np.zeros((model.horizon, len(model.start)))
    for e in episodes(model):
        for t, (s, _, _) in enumerate(e.steps):
            total[t, s] += e.mass(pi)
    return total


def action_value(model: Model, pi: np.ndarray, t: int, state: int, action: int) -> float:
    """E[discounted return from step t on | s_t, a_t], by restarting the model there."""
    total = 0.0
    for following, probability in enumerate(model.transition[state, action]):
        later = 0.0
        if probability > 0 and t + 1 < model.horizon and not model.terminal[following]:
            rest = Model(
                **{**vars(model), "start": np.eye(len(model.start))[following],
                   "horizon": model.horizon - t - 1}
            )  # fmt: skip
            later = value(rest, pi)
        total += probability * (model.reward[state, action] + model.bonus[following] + model.discount * later)
    return total


def divergence(model: Model, pi: np.ndarray, mu: np.ndarray) -> dict[str, float | np.ndarray]:
    names = ("kl_pi_mu", "kl_mu_pi", "second_moment", "squares", "ratios", "length")
    total = dict.fromkeys(names, 0.0)
    prefix, largest = np.zeros(model.horizon), -math.inf
    for e in episodes(model):
        ratios, mass = e.ratios(pi, mu), e.mass(mu)
        tokens = [pi[s, a] / mu[s, a] for s, a, _ in e.steps]
        total["kl_pi_mu"] += e.mass(pi) * math.log(ratios[-1])
        total["kl_mu_pi"] -= mass * math.log(ratios[-1])
        total["second_moment"] += mass * ratios[-1] ** 2
        total["squares"] += mass * sum(rho**2 for rho in tokens)
        total["ratios"] += mass * sum(tokens)
        total["length"] += mass * len(tokens)
        prefix += mass * np.array([ratios[min(t, len(ratios) - 1)] ** 2 for t in range(model.horizon)])
        largest = max(largest, math.log(ratios[-1]))
    return {
        "kl_pi_mu": total["kl_pi_mu"], "kl_mu_pi": total["kl_mu_pi"], "second_moment": total["second_moment"],
        "second_moment_token": total["squares"] / total["length"],
        "mean_rho_token": total["ratios"] / total["length"], "second_moment_prefix_T": prefix,
        "max_log_rho": largest,
    }  # fmt: skip


def philox(counter: tuple[int, int, int, int], key: int) -> tuple[int, int, int, int]:
    """Philox-4x32-10 on Python integers, from the pseudocode of Salmon et al. (2011), section 3.3."""
    c, k = list(counter), [key % 2**32, key >> 32]
    for _ in range(10):
        high_0, low_0 = divmod(0xD2511F53 * c[0], 2**32)
        high_1, low_1 = divmod(0xCD9E8D57 * c[2], 2**32)
        c = [high_1 ^ c[1] ^ k[0], low_1, high_0 ^ c[3] ^ k[1], low_0]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c[0], c[1], c[2], c[3]


def pair(t: int, b: int, step: int, block: int, key: int) -> tuple[float, float]:
    words = philox((t, b, step, block), key)
    return ((words[0] * 2**32 + words[1]) >> 11) / 2**53, ((words[2] * 2**32 + words[3]) >> 11) / 2**53


def draw(mass: np.ndarray, uniform: float) -> int:
    total = 0.0
    for index, probability in enumerate(mass):
        total += probability
        if uniform < total:
            return index
    return int(np.flatnonzero(mass)[-1])


def simulate(
    model: Model,
    pi: np.ndarray,
    starts: np.ndarray,
    group: int,
    key: int,
    step: int,
    noise: str,
    noise_std: float | np.ndarray,
) -> list[list[tuple[int, int, float]]]:
    """(s, a, r) of every step of the len(starts) * group episodes of one replica.

    pi: [S, A], or [B, T, S, A] where each step of each episode has a policy of its own.
    """
    result = []
    for b in range(len(starts) * group):
        state, steps = int(starts[b // group]), []
        for t in range(model.horizon):
            first, second = pair(t, b, step, 0, key)
            action = draw(pi[state] if pi.ndim == 2 else pi[b, t, state], first)
            following = draw(model.transition[state, action], second)
            reward = model.reward[state, action]
            first, second = pair(t, b, step, 1, key)
            if noise == "bernoulli":
                reward = float(first < reward)
            elif noise == "normal":
                std = np.broadcast_to(noise_std, model.reward.shape)[state, action]
                reward += std * math.sqrt(-2 * math.log(1 - first)) * math.cos(2 * math.pi * second)
            steps.append((state, action, reward + model.bonus[following]))
            state = following
            if model.terminal[state]:
                break
        result.append(steps)
    return result
