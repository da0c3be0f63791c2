"""Rows of the score-function family: w is a number per token, times A."""

import math

import numpy as np


def per_token(weight):
    """A row from a function (ratio, advantage) -> w / A of one token, on pi/mu."""
    return lambda s, rows: s.adv * np.array([weight(float(x), s.adv) for x in s.r])


def per_token_of_anchor(weight):
    """The same on pi/anchor."""
    return lambda s, rows: s.adv * np.array([weight(float(x), s.adv) for x in s.u])


def within(low, high):
    return lambda x, a: low if x < low else high if x > high else x


def dispo(x, a):
    return within(0.8, 11.0)(x, a) if a > 0 else within(0.0, 101.0)(x, a)


def is_kept_by_ppo(x, a, low=0.8, high=1.2):
    """Whether min(x A, clip(x) A) still depends on x."""
    return not ((a > 0 and x > high) or (a < 0 and x < low))


def is_in_ring(x, a):
    return 0.8 <= x <= 1.2 or (a > 0 and x <= 0.4) or (a < 0 and x >= 3.0)


def vespo(ratios, adv):
    power, rate = (2, 3) if adv > 0 else (3, 2)
    product = math.prod(ratios)
    return adv * np.full(len(ratios), product**power * math.exp(rate - rate * product))


def red_drop(s, rows):
    # No group of the batch has more negatives than positives: plain group-mean REINFORCE.
    group = [row.reward for row in rows if row.group == s.group]
    assert sum(r < np.mean(group) for r in group) <= sum(r >= np.mean(group) for r in group)
    return (s.reward - np.mean(group)) * s.ones


WEIGHTS = {
    "importance_reinforce@torchforge": per_token(within(0.1, 10.0)),
    "importance_reinforce@tinker": per_token(lambda x, a: x),
    "importance_reinforce@pipelinerl": per_token(within(0.0, 1.2)),
    "cispo@verl": per_token_of_anchor(within(0.8, 1.2)),
    "cispo@nemo-rl": per_token_of_anchor(within(0.8, 1.2)),
    "cispo@slime": per_token_of_anchor(within(0.8, 1.2)),
    "cispo@roll": per_token_of_anchor(within(0.9, 1.1)),
    "cispo@trl": per_token_of_anchor(within(0.0, 5.0)),
    "cispo@tinker": per_token(within(0.0, 4.0)),
    "cispo@open-instruct": per_token_of_anchor(within(0.0, 1.272)),
    "cispo@trinity-mask": per_token(lambda x, a: min(x, 1.28) if a < 0 or x <= 1.28 else 0.0),
    "cispo@skyrl": per_token_of_anchor(within(0.0, 5.0)),
    "cispo@skyrl-rollout-is": per_token(lambda x, a: x if 0.8 < x < 1.2 else 0.0),
    "topr@trinity": per_token(lambda x, a: 1.0 if a > 0 else min(x, 1.0)),
    "topr@roll": lambda s, rows: s.adv * (s.ones if s.reward > 0 else np.minimum(s.u, 1.0)),
    "topr@verl": lambda s, rows: (
        s.adv * s.ones * (1.0 if s.adv > 0 else min(1.0, math.prod(s.r) ** (1 / s.n)))
    ),
    "dispo": per_token(dispo),
    "vespo": lambda s, rows: vespo(s.r, s.adv),
    "vespo@trl": lambda s, rows: vespo(s.u, s.adv),
    "aipo": per_token(lambda x, a: min(x, 2.0)),
    "rec_oneside": per_token(lambda x, a: float(is_kept_by_ppo(x, a))),
    "rec_twoside": per_token(lambda x, a: float(0.8 <= x <= 1.2)),
    "rec_ring": per_token(lambda x, a: float(is_in_ring(x, a))),
    "red_weight": lambda s, rows: s.adv * s.ones * math.exp(s.adv),
    "red_drop": red_drop,
}

DISPO_ILLUSTRATION = {"eps_low_pos": 0.8, "eps_high_pos": 0.3, "eps_low_neg": 1.0, "eps_high_neg": 1.0}
IMPORTANCE = {"weight": "importance"}

F1 = [
    ("cispo@verl", {}, (1.2, 0.8), (0.8, 1.2, 1.2)),
    ("cispo@verl", {"eps_low": 10.0}, (1.2, 0.5), (0.5, 1.2, 1.2)),
    ("cispo@trl", {}, (1.5, 0.5), (0.5, 1.25, 4)), ("cispo@skyrl", {}, (1.5, 0.5), (0.5, 1.25, 4)),
    ("cispo@tinker", {"high": 3.0}, (1.5, 0.5), (0.5, 1.25, 3)),
    ("cispo@open-instruct", {}, (1.272, 0.5), (0.5, 1.25, 1.272)),
    ("cispo@roll", {}, (1.1, 0.9), (0.9, 1.1, 1.1)), ("cispo@trinity-mask", {}, (0, 0.5), (0.5, 1.25, 1.28)),
    ("cispo@trinity-mask", {"eps_low": 0.2}, (0, 0.8), (0, 1.25, 1.28)),
    ("cispo@skyrl-rollout-is", {"eps_high": 0.3}, (0, 0), (0, 1.25, 0)),
    ("dispo", DISPO_ILLUSTRATION, (1.3, 0.5), (0.5, 1.25, 2.0)),
    ("vespo", {}, (1.1908, 1.1908), (0.7779, 0.7779, 0.7779)),
    ("vespo@trl", {}, (1.1908, 1.1908), (0.7779, 0.7779, 0.7779)), ("topr@trinity", {}, (1, 1), (0.5, 1, 1)),
    ("topr@roll", {}, (1, 1), (0.5, 1, 1)),
    ("topr@roll", {"positive_weight": 2.0, "negative_weight": 0.5}, (2, 2), (0.25, 0.5, 0.5)),
    ("topr@verl", {}, (1, 1), (1, 1, 1)), ("aipo", {"r_max": 3.0}, (1.5, 0.5), (0.5, 1.25, 3.0)),
    ("importance_reinforce@torchforge", {"low": 0.6}, (1.5, 0.6), (0.6, 1.25, 4.0)),
    ("importance_reinforce@pipelinerl", {}, (1.2, 0.5), (0.5, 1.2, 1.2)),
    ("rec_oneside", {}, (0, 1), (0, 1, 1)), ("rec_oneside", IMPORTANCE, (0, 0.5), (0, 1.25, 4.0)),
    ("rec_oneside", {"level": "geometric"}, (1, 1), (1, 1, 1)),
    ("rec_oneside", {"level": "geometric", **IMPORTANCE}, (0.8660, 0.8660), (1.3572, 1.3572, 1.3572)),
    ("rec_twoside", {"eps_high": 0.3}, (0, 0), (0, 1, 0)),
    ("rec_twoside", {"eps_high": 0.3, **IMPORTANCE}, (0, 0), (0, 1.25, 0)),
    ("rec_ring", {}, (0, 0), (0, 0, 1)), ("rec_ring", {"far_low": 0.45, "eps_high": 0.3}, (0, 1), (0, 1, 1)),
    ("rec_ring", {"far_low": 0.45, "eps_high": 0.3, **IMPORTANCE}, (0, 0.5), (0, 1.25, 4.0)),
]  # fmt: skip
