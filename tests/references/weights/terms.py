"""Rows of the terms. v = pi/ref, so that the estimators are functions of log v."""

import math

import numpy as np


def k3(x):
    return 1 / math.exp(x) - 1 + x


def tokens(f):
    return lambda s, rows: np.array(f(s), dtype=float)


def mean_entropy(rows):
    return np.mean([-math.log(p) for each in rows for p in each.p])


WEIGHTS = {
    # d k3 / d log pi = 1 - ref/pi
    "kl_penalty": tokens(lambda s: [1 / v - 1 for v in s.v]),
    "kl_penalty@verl": tokens(lambda s: [1 / v - 1 if k3(math.log(v)) < 10 else 0 for v in s.v]),
    "kl_penalty@nemo-rl": tokens(lambda s: [-math.log(v) if k3(math.log(v)) < 10 else 0 for v in s.v]),
    # d (u k3) / d log pi = u k3 + u (1 - ref/pi)
    "kl_penalty@trl": tokens(
        lambda s: [-u * (k3(math.log(v)) + 1 - 1 / v) for u, v in zip(s.u, s.v, strict=True)]
    ),
    "unbiased_kl": tokens(
        lambda s: [-r * (k3(math.log(v)) + 1 - 1 / v) for r, v in zip(s.r, s.v, strict=True)]
    ),
    "entropy_bonus": tokens(lambda s: [-math.log(p) for p in s.p]),
    "distillation": tokens(lambda s: [-math.log(v) for v in s.v]),
    # ref = pi / v and mu = pi / r, so that mu/ref = v / r
    "distillation@tinker": tokens(lambda s: [-r * math.log(v / r) for r, v in zip(s.r, s.v, strict=True)]),
    # reverse: W log(pi/ref), W = pi/mu, or pi/ref where the teacher drew the token
    "f_distillation": tokens(
        lambda s: [-(v if s.origin == 1 else r) * math.log(v) for r, v in zip(s.r, s.v, strict=True)]
    ),
    "sft": tokens(lambda s: s.ones),
}

F1 = []
CASES = [
    (
        "entropy_bonus",
        {"set_point": 0.7},
        lambda s, rows: (0.7 - mean_entropy(rows)) * np.array([-math.log(p) for p in s.p]),
    )
]
