"""Rows of the terms. v = pi/ref, so that the estimators are functions of log v."""

import math

import numpy as np


def k3(x):
    return 1 / math.exp(x) - 1 + x


def tokens(f):
    return lambda s, rows: np.array(f(s), dtype=float)


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


def distilled(slope, shift=0.0, of_expert=None):
    """Row of f_distillation: slope(x) is f(x) - x f'(x) of x = ref/pi, in W = pi over the token's sampler."""

    def row(s, rows):
        if s.origin == 1 and of_expert is not None:
            return of_expert * s.ones
        weight = s.v if s.origin == 1 else s.r
        return np.array([-w * (slope(1 / v) + shift) for w, v in zip(weight, s.v, strict=True)])

    return row


def skewed(beta):
    """beta KL(ref || m) + (1 - beta) KL(pi || m)."""
    return distilled(lambda x: -(1 - beta) * math.log(beta * x + 1 - beta))


F1 = []
CASES = [
    ("f_distillation", {"divergence": "forward"}, distilled(lambda x: -x, 1.0, of_expert=1.0)),
    ("f_distillation", {"divergence": "js"}, skewed(0.5)),
    ("f_distillation", {"divergence": "js", "beta": 0.2}, skewed(0.2)),
    ("f_distillation", {"divergence": "tv"}, distilled(lambda x: -0.5 if x > 1 else 0.5 if x < 1 else 0.0)),
]
