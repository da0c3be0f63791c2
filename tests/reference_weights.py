"""Effective weights per unit of advantage, derived by hand for every objective. Imports none of our code.

Each row maps (token ratios of one sequence, its advantage, all sequences) to w_t / A under the
token-sum convention. A new objective needs one row here; its contract tests appear by themselves.
"""

from __future__ import annotations

import numpy as np


def _none(ratios, adv, batch):
    return np.ones(len(ratios))


def _sequence_weight(ratios, adv, batch):
    return np.full(len(ratios), np.prod(ratios))


def _ppo(ratios, adv, batch, low=0.8, high=1.2):
    # d/dlogp of min(uA, clip(u)A) is uA while the unclipped branch is the smaller one, else 0.
    return np.array([0.0 if (u > high if adv > 0 else u < low) else u for u in ratios])


def _dual(ratios, adv, batch, c=3.0):
    single = _ppo(ratios, adv, batch)
    return np.where((adv < 0) & (np.array(ratios) > c), 0.0, single)


def _gspo(ratios, adv, batch, low=1 - 3e-4, high=1 + 4e-4):
    # s = W^(1/T), ds/dlogp_t = s / T, and the T tokens share the sequence's loss evenly.
    s = np.prod(ratios) ** (1 / len(ratios))
    inside = s <= high if adv > 0 else s >= low
    return np.full(len(ratios), s / len(ratios) if inside else 0.0)


def _cispo(ratios, adv, batch):
    return np.clip(ratios, 0.0, 1.28)


def _minpro(ratios, adv, batch):
    lowest = [1.0] + [min(ratios[:t]) for t in range(1, len(ratios))]
    return np.clip(np.array(lowest) * np.array(ratios), 0.0, 1.28)


def _topr(ratios, adv, batch):
    return np.ones(len(ratios)) if adv > 0 else np.full(len(ratios), np.clip(np.prod(ratios), 0, 1))


def _m2po(ratios, adv, batch, tau=0.04):
    # The loop of Algorithm 1, written as a loop: drop the largest while the mean is above tau.
    harmful = [
        (np.log(r) ** 2, b, t)
        for b, (a, rs) in enumerate(batch)
        for t, r in enumerate(rs)
        if (a > 0 and r > 1) or (a < 0 and r < 1)
    ]
    while harmful and np.mean([h[0] for h in harmful]) > tau:
        harmful.remove(max(harmful))
    kept = {(b, t) for _, b, t in harmful}
    b = next(i for i, (a, rs) in enumerate(batch) if rs is ratios or (a == adv and rs == ratios))
    is_harmful = [(adv > 0 and r > 1) or (adv < 0 and r < 1) for r in ratios]
    return np.array(
        [
            r if not h or (b, t) in kept else 0.0
            for t, (r, h) in enumerate(zip(ratios, is_harmful, strict=True))
        ]
    )


WEIGHTS = {
    "reinforce": _none,
    "importance_reinforce": _sequence_weight,
    "ppo_clip": _ppo,
    "dual_clip": _dual,
    "gspo": _gspo,
    "cispo": _cispo,
    "minpro": _minpro,
    "topr": _topr,
    "m2po": _m2po,
}

# Published or hand-worked values on F1: A = +1 with ratios (1.5, 0.5), A = -1 with (0.5, 1.25, 4.0).
# (objective, hyperparameters, w/A of the first sequence, w/A of the second)
F1_ROWS = [
    ("reinforce", {}, (1, 1), (1, 1, 1)),
    ("ppo_clip", {}, (0, 0.5), (0, 1.25, 4.0)),
    ("ppo_clip", {"eps_high": 0.28}, (0, 0.5), (0, 1.25, 4.0)),
    ("dual_clip", {}, (0, 0.5), (0, 1.25, 0)),
    ("dual_clip", {"eps_high": 0.28, "c": 10.0}, (0, 0.5), (0, 1.25, 4.0)),
    ("gspo", {}, (0.4330, 0.4330), (0.4524, 0.4524, 0.4524)),
    ("gspo", {"eps_low": 0.2, "eps_high": 0.2}, (0.4330, 0.4330), (0.4524, 0.4524, 0.4524)),
    ("cispo", {"eps_high": 0.2}, (1.2, 0.5), (0.5, 1.2, 1.2)),
    ("cispo", {"eps_low": 0.2, "eps_high": 0.2}, (1.2, 0.8), (0.8, 1.2, 1.2)),
    ("cispo", {"eps_high": 4.0}, (1.5, 0.5), (0.5, 1.25, 4.0)),
    ("minpro", {"eps_high": 1e9}, (1.5, 0.75), (0.5, 0.625, 2.0)),
    ("minpro", {"eps_low": 0.2, "eps_high": 0.2}, (1.2, 0.8), (0.8, 0.8, 1.2)),
    ("m2po", {}, (0, 0.5), (0, 1.25, 4.0)),
    ("topr", {}, (1, 1), (1, 1, 1)),
    ("importance_reinforce", {}, (0.75, 0.75), (2.5, 2.5, 2.5)),
    ("importance_reinforce", {"cap": 2.0}, (0.75, 0.75), (2.0, 2.0, 2.0)),
    ("importance_reinforce", {"level": "prefix"}, (1.5, 0.75), (0.5, 0.625, 2.5)),
    ("importance_reinforce", {"level": "token"}, (1.5, 0.5), (0.5, 1.25, 4.0)),
    ("importance_reinforce", {"level": "geometric"}, (0.8660, 0.8660), (1.3572, 1.3572, 1.3572)),
]
