"""Rows of the mixtures; the batch has one replayed (origin 2) and one expert (origin 1) sequence."""

from functools import partial

import numpy as np
from references.weights.first import clip_weight


def tokens(rows, *origins):
    return sum(row.n for row in rows if row.origin in origins)


def chord(s, rows, mu=0.1):
    everything = tokens(rows, 0, 1, 2)
    if s.origin == 1:
        return mu * everything / tokens(rows, 1) * (s.p - s.p**2)
    return (1 - mu) * everything / tokens(rows, 0, 2) * s.adv * clip_weight(s.u, s.adv)


def self_imitation(s, rows, kappa=1.0):
    scale = sum(row.n for row in rows) / tokens(rows, s.origin)
    if s.origin == 1:
        return 0 * s.ones
    if s.origin == 2:
        return kappa * scale * max(s.adv, 0.0) * clip_weight(s.r, 1.0, 0.8, 1.28)
    return scale * s.adv * clip_weight(s.u, s.adv, 0.8, 1.28)


def remix(s, rows, eps=0.2):
    inside = s.r <= s.d + eps if s.adv > 0 else s.r >= s.d - eps
    return s.adv * np.where(inside, s.r, 0.0)


def amplified(s, rows):
    return 3.0 if s.reward >= 1 else s.adv * (3.0 if s.adv > 0 else 1.0)


def amplified_author(s, rows):
    return 1.0 if s.reward >= 1 else s.adv * (3.0 if 0 <= s.adv < 1 else 1.0)


WEIGHTS = {
    "chord": chord,
    "self_imitation": self_imitation,
    "remix": remix,
    "positive_amplification": lambda s, rows: s.ones * amplified(s, rows),
    "positive_amplification@author": lambda s, rows: s.ones * amplified_author(s, rows),
}

CASES = [
    ("chord", {"mu": 0.3}, partial(chord, mu=0.3)), ("remix", {"eps": 0.3}, partial(remix, eps=0.3)),
    ("self_imitation", {"kappa": 0.4}, partial(self_imitation, kappa=0.4)),
]  # fmt: skip
# Without replayed and expert tokens: PPO's clip, and a reward of 1 against one of -1.
F1 = [
    ("chord", {"mu": 0.0}, (0, 0.5), (0, 1.25, 4.0)), ("chord", {"mu": 0.5}, (0, 0.25), (0, 0.625, 2.0)),
    ("self_imitation", {}, (0, 0.5), (0, 1.25, 4.0)), ("remix", {}, (0, 0.5), (0, 1.25, 4.0)),
    ("remix", {"eps": 0.6}, (1.5, 0.5), (0.5, 1.25, 4.0)), ("positive_amplification", {}, (3, 3), (1, 1, 1)),
    ("positive_amplification@author", {}, (1, 1), (1, 1, 1)),
]  # fmt: skip
