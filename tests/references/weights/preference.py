"""Rows of the preference family and of the classical baselines."""

import numpy as np
from references.weights.first import clip_weight


def mates(s, rows):
    return [row for row in rows if row.group == s.group]


def log_product(row):
    return float(np.sum(np.log(row.v)))


def log_mean(row):
    return float(np.mean(np.log(row.v)))


def pairs(s, rows, only_extremes=False):
    """(winner, loser) of the sequence's group."""
    group = mates(s, rows)
    found = [(w, loser) for w in group for loser in group if w.reward > loser.reward]
    best, worst = max(row.reward for row in group), min(row.reward for row in group)
    if only_extremes:
        found = [(w, loser) for w, loser in found if w.reward == best and loser.reward == worst]
    return found


def from_pairs(s, rows, slope, score=log_product, only_extremes=False):
    """A pair's loss is carried by both its members, G / (2P) each: -G/P dloss/dmargin, up or down."""
    chosen = pairs(s, rows, only_extremes)
    pull = sum(slope(score(w) - score(x)) * ((w is s) - (x is s)) for w, x in chosen)
    return -s.ones * pull * len(mates(s, rows)) / max(len(chosen), 1)


def logistic_slope(margin, beta=0.1):
    return -beta / (1 + np.exp(beta * margin))


def square_slope(margin, beta=0.1):
    return 2 * (margin - 0.5 / beta)


def p3o(s, rows, eps=0.2):
    others = [row.reward for row in mates(s, rows) if row is not s]
    gap = s.reward - np.mean(others) if others else 0.0
    return s.ones * gap * clip_weight(np.prod(s.u), gap, 1 - eps, 1 + eps)


WEIGHTS = {
    "dpo": lambda s, rows: from_pairs(s, rows, logistic_slope),
    "ipo": lambda s, rows: from_pairs(s, rows, square_slope),
    "ipo@trl": lambda s, rows: from_pairs(s, rows, square_slope, log_mean) / s.n,
    "online_dpo": lambda s, rows: from_pairs(s, rows, logistic_slope, only_extremes=True),
    "p3o": p3o,
    "rloo": lambda s, rows: s.ones * s.adv * clip_weight(np.prod(s.u), s.adv),
    "remax": lambda s, rows: s.adv - 0.1 * np.log(s.v),
}

# F1 is one group with rewards +1 and -1, pi = ref and sequence ratios 0.75 and 2.5 to the anchor.
F1 = [
    ("dpo", {}, (0.1, 0.1), (0.1, 0.1, 0.1)), ("ipo", {}, (20, 20), (20, 20, 20)),
    ("ipo@trl", {}, (10, 10), (6.6667, 6.6667, 6.6667)),
    ("online_dpo", {"loss": "ipo", "beta": 0.5}, (4, 4), (4, 4, 4)), ("p3o", {}, (1.5, 1.5), (5, 5, 5)),
    ("p3o", {"clip": "joint"}, (0.6, 0.6), (0.6, 0.6, 0.6)), ("rloo", {}, (0.75, 0.75), (2.5, 2.5, 2.5)),
]  # fmt: skip
