"""Rows of what public stacks compute beside the papers: variants, and options that are off by default."""

import math

import numpy as np

from .decoupled import k3, mean_of_d, spread, weighed
from .first import clip_weight


def capped_at_two(s):
    return [min(x, 2.0) for x in s.d]


def normalized(s, rows):
    everything = [w for row in rows for w in capped_at_two(row)]
    share = sum(everything) / len(everything)
    return weighed(lambda s: [w / share for w in capped_at_two(s)], negative_high=3.0)(s, rows)


def normalized_by_sequence(s, rows):
    worth = [min(float(np.prod(row.d)), 2.0) for row in rows]
    own = min(float(np.prod(s.d)), 2.0) / (sum(worth) / len(worth))
    return weighed(lambda s: spread(own, s), negative_high=3.0)(s, rows)


def truncated_mean(s):
    return spread(min(max(mean_of_d(s), 0.9), 1.1), s)


def geometric_sapo(s, rows):
    mean, tau = math.exp(sum(math.log(u) for u in s.u) / s.n), 1.0 if s.adv > 0 else 1.05
    return s.ones * s.adv * mean / math.cosh(tau * (mean - 1) / 2) ** 2


def geometric_ctpo(s, rows):
    weight, so_far = [], 0.0
    for n, u in enumerate(s.u, start=1):
        so_far += math.log(u)
        mean, narrow = so_far / n, 1 / math.sqrt(n)
        over, under = mean > 0.05 * narrow, mean < -0.025 * narrow
        weight.append(0.0 if over or (under and s.adv < 0) else math.exp(mean))
    return s.adv * np.array(weight)


def m2po_floors(s, rows, low=0.7, high=1.5):
    """A bound that the floors widen: only what lies beyond both the budget's bound and the floor is cut."""
    squares = sorted(math.log(r) ** 2 for row in rows for r in row.r if row.adv * math.log(r) > 0)
    n, k = len(squares), 0
    while k < n and sum(squares[: k + 1]) + squares[k] * (n - k - 1) < 0.04 * n:
        k += 1
    reach = math.inf if k == n else math.sqrt(squares[k - 1]) if k else 0.0
    bottom, top = min(math.exp(-reach), low) - 1e-12, max(math.exp(reach), high) + 1e-12
    return s.adv * clip_weight(s.r, s.adv, bottom, top)


def corrected_k3(s, rows, cap=2.0):
    found = []
    for r, v in zip(s.r, s.v, strict=True):
        slope = 1 - 1 / v  # of k3 in log pi
        found.append(-cap * slope if r > cap else -r * (k3(1 / v) + slope))
    return np.array(found)


def separate_windows(s, rows):
    """Weights within [0, 1.28], the mask at [0.6, 1.4]."""
    gone = (s.r > 1.4) if s.adv > 0 else (s.r < 0.6)
    return s.adv * np.where(gone, 0.0, np.minimum(s.r, 1.28))


def dppo_prime_rl(s, rows, scale=0.5):
    kept = []
    for r, p in zip(s.r, s.p, strict=True):
        moved = p - p / r
        kept.append(0.0 if (moved if s.adv > 0 else -moved) > 0.2 else r)
    return scale * s.adv * np.array(kept) - 2e-3 * np.log(s.r)


def opsm_dual(s, rows):
    left = s.adv < 0 and -np.mean(np.log(s.r)) > 0.1
    return s.adv * clip_weight(s.u, s.adv, negative_high=1.5) * (0.0 if left else 1.0)


def dual(value):
    return weighed(value, negative_high=1.5)


WEIGHTS = {
    "tis@verl-normalized": normalized, "tis@areal": weighed(truncated_mean),
    "sapo@areal-sequence": geometric_sapo, "ctpo@author-geomean": geometric_ctpo,
    "m2po@author-floors": m2po_floors, "unbiased_kl@trinity": corrected_k3,
}  # fmt: skip

C = {"c": 1.5}
CASES = [
    ("tis@verl-normalized", {"level": "sequence"}, normalized_by_sequence),
    ("tis@areal", {"level": "token"}, weighed(lambda s: [min(max(x, 0.9), 1.1) for x in s.d])),
    ("tis@areal", C, dual(truncated_mean)), ("decoupled_ppo", C, dual(lambda s: s.d)),
    ("decoupled_ppo@areal", C, dual(lambda s: [x if x <= 5 else 0 for x in s.d])),
    ("icepop", C, dual(lambda s: [x if 0.5 <= x <= 5 else 0 for x in s.d])),
    ("mis", C, dual(lambda s: spread(np.prod(s.d) if np.prod(s.d) <= 3 else 0, s))),
    ("kl_rejection", {**C, "limit": 0.6}, dual(lambda s: [k3(x) <= 0.6 for x in s.d])),
    ("opsm", C, opsm_dual), ("dppo_tv@prime-rl", {"adv_tau": 0.5}, dppo_prime_rl),
    ("dppo_tv@prime-rl", {"adv_tau": 0.0}, lambda s, rows: -2e-3 * np.log(s.r)),
    ("cispo@trinity-mask", {"mask_low": 0.4, "mask_high": 0.4}, separate_windows),
    ("m2po@author", {"least_low": 0.6, "least_high": 1.3}, lambda s, rows: m2po_floors(s, rows, 0.6, 1.3)),
    ("unbiased_kl@trinity", {"cap": 1.2}, lambda s, rows: corrected_k3(s, rows, 1.2)),
    ("kl_penalty", {"estimator": "abs"}, lambda s, rows: -np.sign(np.log(s.v))),
    ("kl_penalty", {"estimator": "abs", "gradient": "both"},
     lambda s, rows: -np.abs(np.log(s.v)) - np.sign(np.log(s.v))),
    ("kl_penalty", {"estimator": "abs", "direction": "forward", "gradient": "both"},
     lambda s, rows: -np.sign(np.log(s.v)) / s.v),
]  # fmt: skip

# mu = anchor on fixture F1: d = 1 throughout.
F1 = [
    ("tis@verl-normalized", {}, (0, 0.5), (0, 1.25, 0)),
    ("tis@areal", {}, (0, 0.5), (0, 1.25, 4.0)),
    ("sapo@areal-sequence", {"tau_pos": 1e-6, "tau_neg": 1e-6}, (0.8660, 0.8660), (1.3572, 1.3572, 1.3572)),
    # Means of the first t: A > 0 1.5, 0.8660; A < 0 0.5, 0.7906, 1.3572. Windows wide enough to see them.
    ("ctpo@author-geomean", {"b_high": 9.0}, (1.5, 0.8660), (0, 0, 0)),
    ("ctpo@author-geomean", {"b_low": 9.0, "b_high": 9.0, "b_c": 9.0}, (1.5, 0.8660), (0.5, 0.7906, 1.3572)),
    # The budget allows e^+-0 here, the floors [0.7, 1.5] and [0.4, 1.6].
    ("m2po@author-floors", {"least_high": 1.6}, (1.5, 0.5), (0, 1.25, 4.0)),
    ("m2po@author-floors", {"least_high": 1.45}, (0, 0.5), (0, 1.25, 4.0)),
    ("m2po@author-floors", {"least_low": 0.4, "least_high": 1.6}, (1.5, 0.5), (0.5, 1.25, 4.0)),
    ("icepop", {"c": 3.0}, (0, 0.5), (0, 1.25, 0)),
    ("mis", {"c": 3.0}, (0, 0.5), (0, 1.25, 0)),
    ("cispo@trinity-mask", {"eps_high": 4.0, "mask_high": 0.28}, (0, 0.5), (0.5, 1.25, 4.0)),
    (
        "cispo@trinity-mask",
        {"eps_low": 0.2, "eps_high": 0.2, "mask_low": 0.6, "mask_high": 0.6},
        (1.2, 0.8),
        (0.8, 1.2, 1.2),
    ),
]
