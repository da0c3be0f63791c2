"""Rows of the objectives with three policies: behavior mu, anchor, target pi.

Every weight is (what the mismatch d is worth) * (the derivative of PPO's clipped surrogate in u): the
first is a plain Python loop here, the second clip_weight.
"""

import math

import numpy as np

from .first import clip_weight


def weighed(value, high=1.2, negative_high=np.inf):
    """Row from value(s) -> what every token's mismatch is worth, 0 for dropped tokens."""

    def row(s, rows):
        worth = np.array(value(s), dtype=float)
        surrogate = np.where(worth == 0, 0.0, clip_weight(s.u, s.adv, 0.8, high, negative_high))
        return s.adv * worth * surrogate

    return row


def spread(number, s):
    return [number] * s.n


def mean_of_d(s):
    return math.exp(sum(math.log(x) for x in s.d) / s.n)


def has_outlier(s, low=1e-4, high=100.0):
    return any(x < low or x > high for x in s.d)


def author(s, rows):
    # The derivative of exp(lp - max(log mu, sg(lp) - log 100)) is the value itself.
    open_side = clip_weight(s.u, s.adv) != 0
    return s.adv * np.where(open_side, np.minimum(s.r, 100.0), 0.0)


def k3(x):
    return x - 1 - math.log(x)


WEIGHTS = {
    "decoupled_ppo": weighed(lambda s: s.d),
    "decoupled_ppo@author": author,
    "decoupled_ppo@areal": weighed(lambda s: [x if x <= 5 else 0 for x in s.d]),
    "tis": weighed(lambda s: [min(x, 2) for x in s.d]),
    "tis@verl": weighed(lambda s: [min(x, 2) for x in s.d], negative_high=3.0),
    "tis@open-instruct": weighed(lambda s: [min(x, 2) for x in s.d], high=1.272),
    "tis@openrlhf": weighed(lambda s: [min(max(x, 0.5), 5) for x in s.d]),
    "tis@skyrl": weighed(lambda s: [0 if has_outlier(s) else min(x, 2) for x in s.d]),
    "tis@slime": weighed(lambda s: [0 if has_outlier(s, high=np.inf) else min(x, 2) for x in s.d]),
    "tis@roll": lambda s, rows: s.adv * np.array([min(x, 1.0) for x in s.u]),
    "mis": weighed(lambda s: spread(np.prod(s.d) if np.prod(s.d) <= 3 else 0, s)),
    "mis@skyrl": weighed(lambda s: [0 if has_outlier(s) or not 0.5 <= x <= 2 else x for x in s.d]),
    "icepop": weighed(lambda s: [x if 0.5 <= x <= 5 else 0 for x in s.d]),
    "sequence_mask_tis": weighed(lambda s: s.d if 0.999 <= mean_of_d(s) <= 1.002 else 0 * s.d),
    "sequence_mask_tis@openrlhf": weighed(lambda s: s.d if 0.5 <= mean_of_d(s) <= 5 else 0 * s.d),
    "geometric_rejection": weighed(lambda s: spread(0.999 <= mean_of_d(s) <= 1.001, s)),
    "geometric_rejection@skyrl": weighed(
        lambda s: spread(0.99 <= mean_of_d(s) <= 1.01 and not has_outlier(s), s)
    ),
    "kl_rejection": weighed(lambda s: [k3(x) <= 0.01 for x in s.d]),
    "kl_rejection@verl": weighed(lambda s: [1 / 1.4 <= x <= 1 / 0.6 for x in s.d], negative_high=3.0),
    "token_veto": weighed(lambda s: spread(not has_outlier(s, high=np.inf), s)),
}

# mu = anchor on fixture F1, so that d = 1: what is left is PPO's clip.
PPO = ((0, 0.5), (0, 1.25, 4.0))
DUAL = ((0, 0.5), (0, 1.25, 0))
F1 = [
    *((name, {}, *PPO) for name in WEIGHTS if name not in ("tis@verl", "kl_rejection@verl", "tis@roll")),
    ("tis@verl", {}, *DUAL), ("kl_rejection@verl", {}, *DUAL), ("tis@roll", {}, (1, 0.5), (0.5, 1, 1)),
    ("tis", {"cap": 0.5}, (0, 0.25), (0, 0.625, 2.0)),
    ("decoupled_ppo", {"eps_high": 0.6}, (1.5, 0.5), (0, 1.25, 4.0)),
]  # fmt: skip
