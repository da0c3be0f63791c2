"""Rows of the clipped family: complex-step derivatives of scalar losses, or loops over tokens."""

import numpy as np

from .first import clip_weight


def slope(loss, x):
    """w_t = -dL/dx_t, exact to rounding: Im L(x + ih) / h has no difference that could cancel."""
    tiny = 1e-30
    return np.array([-loss(x + 1j * tiny * np.eye(len(x))[t]).imag / tiny for t in range(len(x))])


def least(*values):
    return min(values, key=np.real)


def most(*values):
    return max(values, key=np.real)


def two_sided(s, rows, delta=4.0):
    def loss(x):
        terms = [least(least(z, delta) * s.adv, least(most(z, 0.8), 1.2) * s.adv) for z in np.exp(x)]
        return -sum(terms)

    return slope(loss, np.log(s.u))


def geometric_clip(s, ratios, low, high, share):
    mean = np.exp(np.mean(np.log(ratios)))
    dead = mean > high if s.adv > 0 else mean < low
    return s.adv * s.ones * (0.0 if dead else mean * share)


def gmpo(s, rows, eps=0.4):
    def loss(x):
        bounded = [least(z, eps) if s.adv >= 0 else most(z, -eps) for z in x]
        return -np.exp(sum(bounded) / s.n) * s.adv

    return slope(loss, np.log(s.u))


def holder(s, rows, p=1.0, eps=0.2):
    def loss(x):
        mean = (np.exp(p * x).sum() / s.n) ** (1 / p)
        return -least(mean * s.adv, least(most(mean, 1 - eps), 1 + eps) * s.adv)

    return slope(loss, np.log(s.u))


def ctpo(s, rows, low=0.025, high=0.05, dual=0.05, p=0.5):
    weight, so_far = [], 0.0
    for n, x in enumerate(np.log(s.u), start=1):
        so_far += x
        inside = so_far <= high * n**p if s.adv > 0 else -low * n**p <= so_far <= dual * n**p
        weight.append(np.exp(so_far) if inside else 0.0)
    return s.adv * np.array(weight)


def value_share(rows, low, high):
    positive = negative = 0.0
    for row in rows:
        for u, mu in zip(row.u, row.p / row.r, strict=True):
            if row.adv > 0:
                positive += mu * min(u * row.adv, min(u, high) * row.adv)
            else:
                negative += mu * min(u * row.adv, min(max(u, low), high) * row.adv)
    total = abs(positive) + abs(negative)
    return abs(positive) / total if total else 1.0


def bapo(s, rows):
    low, high = 60, 120  # hundredths, so that the loop ends where the bounds say it does
    while value_share(rows, low / 100, high / 100) < 0.4 and low + 2 <= 90:
        if high + 5 <= 300:
            high += 5
        else:
            low += 2
    return s.adv * clip_weight(s.u, s.adv, low / 100, high / 100)


def odds(rows, low, high):
    positive = sum(row.adv * min(u, high) for row in rows for u in row.u if row.adv > 0)
    negative = sum(-row.adv * max(u, low) for row in rows for u in row.u if row.adv < 0)
    return positive / negative if negative else np.inf


def bapo_author(s, rows):
    low, high = 60, 120
    while odds(rows, low / 100, high / 100) < 1 and low < 80:
        low = min(low + 5, 80)
    while odds(rows, low / 100, high / 100) < 1 and high < 200:
        high = min(high + 5, 200)
    return s.adv * clip_weight(s.u, s.adv, low / 100, high / 100, negative_high=3.0)


def dppo(s, ratio, other, cap):
    weight = []
    for ratio_t, pi, then in zip(ratio, s.p, other, strict=True):
        gone = pi - then > 0.2 if s.adv > 0 else then - pi > 0.2
        weight.append(0.0 if gone else min(ratio_t, cap))
    return s.adv * np.array(weight)


def dppo_prime_rl(s, rows):
    return dppo(s, s.r, s.p / s.r, np.inf) - 2e-3 * np.log(s.r)


def opsm(s, rows, delta=0.1):
    left = s.adv < 0 and np.mean(np.log(1 / s.r)) > delta
    return s.adv * clip_weight(s.u, s.adv) * (0.0 if left else 1.0)


def turn_ratio(s, x):
    means = {k: np.exp(x[s.turn == k].mean()) for k in set(s.turn)}
    return [means[k] for k in s.turn]


def turn_ppo(s, rows):
    def loss(x):
        return -sum(least(w * s.adv, least(most(w, 0.8), 1.2) * s.adv) for w in turn_ratio(s, x))

    return slope(loss, np.log(s.u))


def over_clipped_mass(s, weight, ratios):
    cut = [w for w in ratios if (w > 1.2 if s.adv > 0 else w < 0.8)]
    return weight / max(1.0, np.sqrt(sum((w * s.adv) ** 2 for w in cut)))


def m2po_author(s, rows, tau=0.04):
    squares = sorted(np.log(r) ** 2 for row in rows for r in row.r if row.adv * np.log(r) > 0)
    if sum(squares) <= tau * len(squares):
        return s.adv * s.r
    k = 0
    while sum(min(v, squares[k]) for v in squares) < tau * len(squares):
        k += 1
    bound = np.sqrt(squares[k - 1]) + 1e-12 if k else 0.0
    return s.adv * clip_weight(s.r, s.adv, np.exp(-bound), np.exp(bound))


def m2po_areal(s, rows, tau=0.04):
    left = sorted(np.log(d) ** 2 for row in rows for d in row.d)
    while len(left) > 1 and np.mean(left) >= tau:
        left.pop()
    keep = (np.log(s.d) ** 2 <= left[-1] + 1e-15) & (s.d <= 5.0)
    return s.adv * keep * s.d * clip_weight(s.u, s.adv, 1.0, 1.0)


def m2po_trinity(s, rows, tau=0.04):
    left = sorted(np.log(r) ** 2 for row in rows for r in row.r if row.adv * (r - 1) > 0)
    while left and sum(left) > tau * len(left):
        left.pop()
    limit = left[-1] + 1e-15 if left else -1.0
    far = (s.adv * np.log(s.r) > 0) & (np.log(s.r) ** 2 > limit)
    return s.adv * np.where(far, 0.0, s.r)


WEIGHTS = {
    "ppo_clip@open-instruct": lambda s, rows: s.adv * clip_weight(s.u, s.adv, 0.8, 1.272),
    "ppo_clip@pipelinerl": lambda s, rows: s.adv * clip_weight(s.r, s.adv),
    "dual_clip@verl": lambda s, rows: s.adv * clip_weight(s.u, s.adv, negative_high=3.0),
    "dual_clip@roll": lambda s, rows: s.adv * clip_weight(s.u, s.adv, negative_high=1.4),
    "two_sided": two_sided,
    "gspo_token": lambda s, rows: geometric_clip(s, s.u, 1 - 3e-4, 1 + 4e-4, 1 / s.n),
    "gspo@verl": lambda s, rows: geometric_clip(s, s.u, 1 - 3e-4, 1 + 4e-4, 1 / s.n),
    "gspo@openrlhf": lambda s, rows: geometric_clip(s, s.r, 1 - 3e-4, 1 + 4e-4, 1 / s.n),
    "gspo@areal": lambda s, rows: geometric_clip(s, s.u, 0.6, 1.4, 1),
    "gspo@pipelinerl": lambda s, rows: geometric_clip(s, s.r, 0.8, 1.2, 1),
    "gmpo": gmpo,
    "gmpo@verl": lambda s, rows: gmpo(s, rows, eps=0.2),
    "holder": holder,
    "ctpo": ctpo,
    "ctpo@author": ctpo,
    "bapo": bapo,
    "bapo@author": bapo_author,
    "dppo_tv": lambda s, rows: dppo(s, s.r, s.p / s.r, 20.0),
    "dppo_tv@verl": lambda s, rows: dppo(s, s.u, s.p / s.u, 3.0),
    "dppo_tv@prime-rl": dppo_prime_rl,
    "opsm": opsm,
    "alp": lambda s, rows: s.adv * clip_weight(s.r, s.adv, 0.5, 4.0, negative_high=3.0),
    "turn_ppo": turn_ppo,
    "s_ppo": lambda s, rows: over_clipped_mass(s, s.adv * clip_weight(s.u, s.adv), s.u),
    "st_ppo": lambda s, rows: over_clipped_mass(s, turn_ppo(s, rows), turn_ratio(s, np.log(s.u))),
    "m2po@author": m2po_author,
    "m2po@areal": m2po_areal,
    "m2po@trinity": m2po_trinity,
}

S1, S2 = 0.8660, 1.3572  # geometric means of F1

F1 = [
    ("two_sided", {"delta": 3.0}, (0, 0.5), (0, 1.25, 0)),
    ("two_sided", {"delta": 10.0}, (0, 0.5), (0, 1.25, 4.0)), ("dual_clip@verl", {}, (0, 0.5), (0, 1.25, 0)),
    ("dual_clip@roll", {}, (0, 0.5), (0, 1.25, 0)),
    ("gspo_token", {}, (0.4330, 0.4330), (0.4524, 0.4524, 0.4524)),
    ("gspo@verl", {}, (0.4330, 0.4330), (0.4524, 0.4524, 0.4524)), ("gspo@areal", {}, (S1, S1), (S2, S2, S2)),
    ("gmpo", {}, (0, 0.4318), (0, 0.4988, 0.4988)),
    ("holder", {"p": 2.0, "eps_high": 9.0}, (1.0062, 0.1118), (0.0342, 0.2137, 2.1888)),
    ("holder", {"p": 1.0, "eps_high": 9.0}, (0.75, 0.25), (0.1667, 0.4167, 1.3333)),
    ("holder", {"p": 0.0, "eps_high": 9.0}, (0.4330, 0.4330), (0.4524, 0.4524, 0.4524)),
    ("holder", {"p": -2.0, "eps_low": 0.9}, (0.0671, 0.6037), (0.6794, 0.1087, 0.0106)),
    ("ctpo", {}, (0, 0.75), (0, 0, 0)), ("ctpo@author", {}, (0, 0.75), (0, 0, 0)),
    ("alp", {"level": "sequence"}, (0.75, 0.75), (2.5, 2.5, 2.5)),
    ("alp", {"level": "prefix"}, (1.5, 0.75), (0.5, 0.625, 2.5)),
    ("alp", {"eps_low": 0.4}, (1.5, 0.5), (0, 1.25, 0)), ("turn_ppo", {}, (S1, S1), (S2, S2, S2)),
    ("s_ppo", {}, (0, 0.5 / 1.5), (0, 1.25, 4.0)),
    ("s_ppo", {"correction": "subtract"}, (-1.5, 0.5), (-0.5, 1.25, 4.0)),
    ("m2po@author", {}, (0, 0.5), (0, 1.25, 4.0)), ("m2po@areal", {}, (0, 0.5), (0, 1.25, 4.0)),
    ("m2po@trinity", {}, (0, 0.5), (0, 1.25, 4.0)),
]  # fmt: skip
