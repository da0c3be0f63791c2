"""Rows of the objectives the bench began with."""

import numpy as np


def clip_weight(u, adv, low=0.8, high=1.2, negative_high=np.inf):
    """d/dlogp of min(u A, clip(u) A) is u A while the unclipped branch is the smaller one, else 0."""
    u = np.asarray(u, dtype=float)
    cut = (u > high) if adv > 0 else (u < low) | (u > negative_high)
    return np.where(cut, 0.0, u)


def importance_reinforce(s, rows):
    return s.adv * np.full(s.n, np.prod(s.r))


def gspo(s, rows, low=1 - 3e-4, high=1 + 4e-4):
    # s = W^(1/T), ds/dlogp_t = s / T, and the T tokens share the sequence's loss evenly.
    mean = np.prod(s.u) ** (1 / s.n)
    inside = mean <= high if s.adv > 0 else mean >= low
    return s.adv * np.full(s.n, mean / s.n if inside else 0.0)


def minpro(s, rows):
    lowest = [1.0] + [min(s.r[:t]) for t in range(1, s.n)]
    return s.adv * np.clip(np.array(lowest) * s.r, 0.0, 1.28)


def topr(s, rows):
    return s.adv * (s.ones if s.adv > 0 else s.ones * np.clip(np.prod(s.r), 0, 1))


def m2po(s, rows, tau=0.04):
    # The loop of Algorithm 1, written as a loop: drop the largest while the mean is above tau.
    def is_harmful(row, t):
        return row.adv * np.log(row.r[t]) > 0

    left = [np.log(row.r[t]) ** 2 for row in rows for t in range(row.n) if is_harmful(row, t)]
    while left and np.mean(left) > tau:
        left.remove(max(left))
    limit = max(left, default=-1.0)
    kept = [not is_harmful(s, t) or np.log(s.r[t]) ** 2 <= limit + 1e-15 for t in range(s.n)]
    return s.adv * np.where(kept, s.r, 0.0)


WEIGHTS = {
    "reinforce": lambda s, rows: s.adv * s.ones,
    "importance_reinforce": importance_reinforce,
    "ppo_clip": lambda s, rows: s.adv * clip_weight(s.u, s.adv),
    "dual_clip": lambda s, rows: s.adv * clip_weight(s.u, s.adv, negative_high=3.0),
    "gspo": gspo,
    "cispo": lambda s, rows: s.adv * np.clip(s.r, 0.0, 1.28),
    "minpro": minpro,
    "topr": topr,
    "m2po": m2po,
}

F1 = [
    ("reinforce", {}, (1, 1), (1, 1, 1)), ("ppo_clip", {}, (0, 0.5), (0, 1.25, 4.0)),
    ("ppo_clip", {"eps_high": 0.28}, (0, 0.5), (0, 1.25, 4.0)), ("dual_clip", {}, (0, 0.5), (0, 1.25, 0)),
    ("dual_clip", {"eps_high": 0.28, "c": 10.0}, (0, 0.5), (0, 1.25, 4.0)),
    ("gspo", {}, (0.4330, 0.4330), (0.4524, 0.4524, 0.4524)),
    ("gspo", {"eps_low": 0.2, "eps_high": 0.2}, (0.4330, 0.4330), (0.4524, 0.4524, 0.4524)),
    ("cispo", {"eps_high": 0.2}, (1.2, 0.5), (0.5, 1.2, 1.2)),
    ("cispo", {"eps_low": 0.2, "eps_high": 0.2}, (1.2, 0.8), (0.8, 1.2, 1.2)),
    ("cispo", {"eps_high": 4.0}, (1.5, 0.5), (0.5, 1.25, 4)),
    ("minpro", {"eps_high": 1e9}, (1.5, 0.75), (0.5, 0.625, 2.0)),
    ("minpro", {"eps_low": 0.2, "eps_high": 0.2}, (1.2, 0.8), (0.8, 0.8, 1.2)),
    ("m2po", {}, (0, 0.5), (0, 1.25, 4.0)), ("topr", {}, (1, 1), (1, 1, 1)),
    ("importance_reinforce", {}, (0.75, 0.75), (2.5, 2.5, 2.5)),
    ("importance_reinforce", {"cap": 2.0}, (0.75, 0.75), (2.0, 2.0, 2.0)),
    ("importance_reinforce", {"level": "prefix"}, (1.5, 0.75), (0.5, 0.625, 2.5)),
    ("importance_reinforce", {"level": "token"}, (1.5, 0.5), (0.5, 1.25, 4.0)),
    ("importance_reinforce", {"level": "geometric"}, (0.8660, 0.8660), (1.3572, 1.3572, 1.3572)),
]  # fmt: skip
