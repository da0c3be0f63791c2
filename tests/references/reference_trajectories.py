"""Value estimators the slow way: every trajectory of a tiny world, and every formula as a loop over episodes.

Independent derivation: plain Python on lists of steps, in exact fractions where the world is given in
fractions; nothing imported from the project.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

Number = Any
Step = tuple[int, int, Number, int]
Path = tuple[Step, ...]


@dataclass(frozen=True)
class World:
    """transition[s][a][s'], reward[s][a], start[s]; `noise` is added or subtracted with chance 1/2 each."""

    transition: Sequence[Sequence[Sequence[Number]]]
    reward: Sequence[Sequence[Number]]
    start: Sequence[Number]
    horizon: int
    gamma: Number
    noise: Number = 0
    terminal: frozenset[int] = frozenset()

    @property
    def states(self) -> range:
        return range(len(self.start))

    @property
    def actions(self) -> range:
        return range(len(self.reward[0]))


def paths(world: World, policy) -> Iterator[tuple[Number, Path]]:
    """(probability, steps (s, a, r, s')) of every trajectory of positive probability."""
    signs = ((Fraction(1, 2), 1), (Fraction(1, 2), -1)) if world.noise else ((Fraction(1), 0),)

    def extend(chance, state, steps):
        if len(steps) == world.horizon or state in world.terminal:
            yield chance, steps
            return
        for a, (half, sign), following in itertools.product(world.actions, signs, world.states):
            p = chance * policy[state][a] * half * world.transition[state][a][following]
            if p > 0:
                reward = world.reward[state][a] + sign * world.noise
                yield from extend(p, following, (*steps, (state, a, reward, following)))

    for state in world.states:
        if world.start[state] > 0:
            yield from extend(world.start[state], state, ())


def q_values(world: World, policy) -> list[list[list[Number]]]:
    """Q_t(s, a) by backward induction, [t][s][a]."""
    later = [0 for _ in world.states]
    found = []
    for _ in range(world.horizon):
        q = [[world.reward[s][a] + world.gamma * sum(world.transition[s][a][k] * later[k]
                                                     for k in world.states)
              for a in world.actions]
             for s in world.states]  # fmt: skip
        later = [
            0 if s in world.terminal else sum(policy[s][a] * q[s][a] for a in world.actions)
            for s in world.states
        ]
        found.append(q)
    return found[::-1]


def value(world: World, policy) -> Number:
    q = q_values(world, policy)[0]
    return sum(world.start[s] * policy[s][a] * q[s][a] for s in world.states for a in world.actions)


def marginals(world: World, policy) -> list[list[Number]]:
    """P(s_t = s, not over), [t][s]."""
    mass, found = list(world.start), []
    for _ in range(world.horizon):
        found.append(mass)
        later = [0 for _ in world.states]
        for s, a, k in itertools.product(world.states, world.actions, world.states):
            if k not in world.terminal:
                later[k] += mass[s] * policy[s][a] * world.transition[s][a][k]
        mass = later
    return found


def dr_variance(world: World, pi, mu, q_hat) -> Number:
    """The recursion of Jiang & Li (2016) from the last step to the first; q_hat[t][s][a]."""
    q = q_values(world, pi)
    v = [[sum(pi[s][a] * row[s][a] for a in world.actions) for s in world.states] for row in q]
    v.append([0 for _ in world.states])
    spread = [0 for _ in world.states]
    for t in reversed(range(world.horizon)):
        later, spread = spread, [0 for _ in world.states]
        for s in world.states:
            if s in world.terminal:
                continue
            rho = [pi[s][a] / mu[s][a] for a in world.actions]
            gaps = [rho[a] * (q[t][s][a] - q_hat[t][s][a]) for a in world.actions]
            mean = sum(mu[s][a] * gaps[a] for a in world.actions)
            spread[s] = sum(mu[s][a] * (gaps[a] - mean) ** 2 for a in world.actions)
            for a in world.actions:
                law = world.transition[s][a]
                ahead = [0 if k in world.terminal else v[t + 1][k] for k in world.states]
                m = sum(law[k] * ahead[k] for k in world.states)
                inner = sum(law[k] * ((ahead[k] - m) ** 2 + later[k]) for k in world.states)
                spread[s] += mu[s][a] * rho[a] ** 2 * (world.noise**2 + world.gamma**2 * inner)
    j = value(world, pi)
    return sum(world.start[s] * (spread[s] + (v[0][s] - j) ** 2) for s in world.states)


def ratios(path: Path, pi, mu, steps: int) -> list[Number]:
    """w_{0:t} for t < steps; the last one goes on after the end."""
    found, w = [], 1
    for t in range(steps):
        if t < len(path):
            s, a = path[t][:2]
            w = w * pi[s][a] / mu[s][a]
        found.append(w)
    return found


def discounted(path: Path, gamma) -> Number:
    return sum(gamma**t * step[2] for t, step in enumerate(path))


def importance(data: Sequence[Path], pi, mu, gamma, steps: int) -> Number:
    return sum(ratios(p, pi, mu, steps)[-1] * discounted(p, gamma) for p in data) / len(data)


def weighted(data: Sequence[Path], pi, mu, gamma, steps: int) -> Number:
    w = [ratios(p, pi, mu, steps)[-1] for p in data]
    return sum(x * discounted(p, gamma) for x, p in zip(w, data, strict=True)) / sum(w)


def per_decision(data: Sequence[Path], pi, mu, gamma, steps: int) -> Number:
    return sum(
        gamma**t * w * p[t][2] for p in data for t, w in enumerate(ratios(p, pi, mu, steps)) if t < len(p)
    ) / len(data)


def per_decision_weighted(data: Sequence[Path], pi, mu, gamma, steps: int) -> Number:
    w = [ratios(p, pi, mu, steps) for p in data]
    return sum(
        gamma**t * sum(w[i][t] * p[t][2] for i, p in enumerate(data) if t < len(p)) / sum(x[t] for x in w)
        for t in range(steps)
    )


def doubly_robust(data: Sequence[Path], pi, mu, gamma, steps: int, q_hat, shares: bool = False) -> Number:
    """DR, or WDR with shares=True; q_hat[t][s][a]."""
    w = [[1, *ratios(p, pi, mu, steps)] for p in data]
    norm = [sum(x[t] for x in w) if shares else len(data) for t in range(steps + 1)]
    total = 0
    for i, p in enumerate(data):
        for t, (s, a, r, _) in enumerate(p):
            v = sum(pi[s][b] * q_hat[t][s][b] for b in range(len(pi[s])))
            total += gamma**t * (w[i][t + 1] / norm[t + 1] * (r - q_hat[t][s][a]) + w[i][t] / norm[t] * v)
    return total


def balanced(world: World, policy) -> list[Path]:
    """A log whose empirical law is the law of the world's trajectories: each one as often as it is likely."""
    table = [(Fraction(chance), path) for chance, path in paths(world, policy)]
    size = math.lcm(*(chance.denominator for chance, _ in table))
    return [path for chance, path in table for _ in range(int(chance * size))]


def quarters(world_seed: int, horizon: int = 3, **changes) -> tuple[World, list, list]:
    """A world of 2 states and 2 actions with pi and mu, all probabilities multiples of 1/4."""
    numbers = itertools.cycle([(world_seed * k + k * k) % 3 + 1 for k in range(1, 20)])
    pair = lambda: (lambda n: [Fraction(n, 4), Fraction(4 - n, 4)])(next(numbers))  # noqa: E731
    rewards = [[Fraction(next(numbers), 2) - Fraction(1, 3), -Fraction(next(numbers))] for _ in range(2)]
    given = {
        "transition": [[pair(), pair()], [pair(), pair()]], "reward": rewards, "start": pair(),
        "horizon": horizon, "gamma": Fraction(4, 5),
    }  # fmt: skip
    return World(**{**given, **changes}), [pair(), pair()], [pair(), pair()]
