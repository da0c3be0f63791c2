"""Advantages worked out one response at a time, in numpy; imports none of our code.

ROWS[name](s, b, **settings) -> the advantage of response b of signals s, a number, or a list with one entry
per place (0 outside the mask) for an advantage per token. SETTINGS: where each setting counts, by name.
"""

from dataclasses import dataclass
from itertools import combinations
from math import exp, inf, isnan, log, prod

import numpy as np

GAP = float("nan")  # what stands outside the mask must not matter


@dataclass(frozen=True)
class Numbers:
    """Groups {0, 2, 3, 4}, {1, 5} and {6}; ragged masks with gaps; response 3 continues response 0."""

    reward: tuple = (0.495, 1.0, 0.0, 0.5, 0.2, 0.0, 0.7)
    group: tuple = (0, 1, 0, 0, 0, 1, 2)
    mask: tuple = ("11010", "10000", "11111", "01100", "11001", "11100", "00110")
    log_rho: tuple = (
        (0.3, -0.2, GAP, 0.9, GAP), (0.5, GAP, GAP, GAP, GAP), (-0.4, 0.1, 0.2, -0.1, 0.6),
        (GAP, -1.1, 0.7, GAP, GAP), (0.25, 0.35, GAP, GAP, -0.8), (-0.6, -0.3, 0.15, GAP, GAP),
        (GAP, GAP, 1.2, -0.5, GAP),
    )  # fmt: skip
    value: tuple = (
        (0.2, 0.5, GAP, 0.1, GAP), (0.6, GAP, GAP, GAP, GAP), (0.3, 0.4, 0.1, 0.7, 0.25),
        (GAP, 0.45, 0.15, GAP, GAP), (0.05, 0.35, GAP, GAP, 0.8), (0.9, 0.65, 0.55, GAP, GAP),
        (GAP, GAP, 0.75, 0.85, GAP),
    )  # fmt: skip
    norm: tuple = (
        (0.9, 0.4, GAP, 1.3, GAP), (0.7, GAP, GAP, GAP, GAP), (0.2, 1.1, 0.6, 0.8, 0.5),
        (GAP, 0.3, 1.6, GAP, GAP), (1.2, 0.1, GAP, GAP, 0.75), (0.35, 0.95, 1.4, GAP, GAP),
        (GAP, GAP, 0.45, 0.55, GAP),
    )  # fmt: skip
    token_reward: tuple | None = None
    sequence_norm: tuple = (2.0, 0.5, 3.0, 1.5, 0.8, 1.1, 0.6)
    greedy: tuple = (0.4, 0.9, 0.4, 0.4, 0.4, 0.9, 0.1)
    reference: tuple = tuple((0.1 * i, 0.5, 1.0 - 0.1 * i) for i in range(7))
    history: tuple = (0.3, 0.1, 0.6, 0.2, GAP, GAP)
    truncated: tuple = (False, False, True, False, True, False, False)
    parent: tuple = (-1, -1, -1, 0, 2, 1, -1)
    turn: tuple = ("00112", "00000", "01122", "01122", "00112", "00011", "00012")

    def peers(self, b):
        return [i for i, g in enumerate(self.group) if g == self.group[b]]

    def rewards(self, b):
        return np.array([self.reward[i] for i in self.peers(b)])

    def places(self, b):
        return [t for t, c in enumerate(self.mask[b]) if c == "1"]

    def at_tokens(self, b, field):
        return [field[b][t] for t in self.places(b)]

    def weight(self, b):
        return exp(sum(self.at_tokens(b, self.log_rho)))

    def paid(self, b, cut=False):
        """Rewards of the tokens under the mask."""
        if self.token_reward is not None:
            return self.at_tokens(b, self.token_reward)
        return [0.0] * (len(self.places(b)) - 1) + [0.0 if cut else self.reward[b]]

    def back(self, b, values):
        row = [0.0] * len(self.mask[b])
        for t, x in zip(self.places(b), values, strict=True):
            row[t] = x
        return row


PAID = (
    (0.1, -0.2, GAP, 0.6, GAP), (0.9, GAP, GAP, GAP, GAP), (-0.1, 0.0, 0.3, 0.2, 0.1),
    (GAP, 0.05, 0.5, GAP, GAP), (0.0, 0.25, GAP, GAP, -0.3), (0.7, -0.6, 0.15, GAP, GAP),
    (GAP, GAP, 0.8, -0.05, GAP),
)  # fmt: skip


def drawn(seed, paid):
    """Draw seven responses in up to four groups: any masks, equal rewards, a history that may be empty."""
    rng = np.random.default_rng(seed)
    rows = lambda scale=1.0: tuple(map(tuple, scale * rng.uniform(0.1, 1.0, (7, 5))))  # noqa: E731
    text = lambda digits: tuple("".join(map(str, row)) for row in digits)  # noqa: E731
    mask = rng.integers(0, 2, (7, 5))
    mask[np.arange(7), rng.integers(0, 5, 7)] = 1
    return Numbers(
        tuple(rng.choice([0.0, 0.2, 0.5, 0.85, 0.9, 1.0], 7)), tuple(rng.integers(0, 4, 7)), text(mask),
        tuple(map(tuple, rng.normal(0, 0.7, (7, 5)))), rows(), rows(), rows() if paid else None,
        tuple(rng.uniform(0.2, 2, 7)), tuple(rng.uniform(size=7)),
        tuple(map(tuple, rng.uniform(size=(7, 3)))),
        tuple(np.where(rng.random(6) < 0.5 + 0.5 * (seed == 0), GAP, rng.uniform(size=6))),
        tuple(rng.random(7) < 0.5), (-1,) * 7, text(np.sort(rng.integers(0, 3, (7, 5)))),
    )  # fmt: skip


def deviation(s, b):
    return s.reward[b] - np.mean(s.rewards(b))


def scaled(x, found, std, eps):
    freedom = 1 if std == "unbiased" else 0
    return 0.0 if len(found) == 1 else (x - found.mean()) / (np.std(found, ddof=freedom) + eps)


def group_std(s, b, std="unbiased", eps=1e-6):
    return scaled(s.reward[b], s.rewards(b), std, eps)


def bent(s, b, knee=0.8, above=0.01, below=1.0, eps=1e-6):
    def f(r):
        return knee + above * np.log(1 + r - knee) if r > knee else knee + 1 - np.exp(below * (knee - r))

    return scaled(f(s.reward[b]), np.array([f(r) for r in s.rewards(b)]), "unbiased", eps)


def nemo_rl(s, b, eps=1e-6):
    others = [s.reward[i] for i in s.peers(b) if i != b]
    if not others:
        return 0.0
    std = np.std(others, ddof=1) if len(others) > 1 else 0.0
    return (s.reward[b] - np.mean(others)) / (std + eps if std > max(eps, 1e-9) else 1.0)


def leave_one_out(s, b):
    others = [s.reward[i] for i in s.peers(b) if i != b]
    return s.reward[b] - (np.mean(others) if others else 0.0)


def amplified(s, b, top, alpha=3.0, best=1.0):
    if s.reward[b] >= best:
        return top or alpha
    return deviation(s, b) * (alpha if deviation(s, b) > 0 else 1.0)


def batch_std(s, b, center=False, eps=1e-8):
    every = np.array([deviation(s, i) if center else s.reward[i] for i in range(7)])
    return scaled(every[b], every, "unbiased", eps)


def areal(s, b, reward_norm=True, eps=1e-5):
    value = [group_std(s, i, eps=eps) if reward_norm else s.reward[i] for i in range(7)]
    return scaled(value[b], np.array([value[i] for i in range(7) for _ in s.places(i)]), "unbiased", eps)


def weighted(s, b, weight, peers=None):
    """R - sum weight R / sum weight over the group."""
    each = {i: weight(i) for i in peers or s.peers(b)}
    return s.reward[b] - sum(w * s.reward[i] for i, w in each.items()) / sum(each.values())


def importance_mean(s, b, eta=2.0, normalize=True):
    each = {i: min(s.weight(i), eta) for i in s.peers(b)}
    divisor = sum(each.values()) if normalize else len(each)
    return s.reward[b] - sum(w * s.reward[i] for i, w in each.items()) / divisor


def tree_opo(s, b):
    # Response 3 (0.5) must stay 0.01 above response 0 (0.495): both move evenly, the sum stays.
    if b not in (0, 3):
        return deviation(s, b)
    middle = (deviation(s, 0) + deviation(s, 3)) / 2
    return middle + (0.005 if b == 3 else -0.005)


def max_at_k(s, b, k=2, center="none", eps=1e-6):
    found = s.peers(b)
    subsets = list(combinations(found, min(k, len(found))))
    share = len(found) / len(subsets)
    value = {i: share * sum(max(s.reward[j] for j in p) for p in subsets if i in p) for i in found}
    every = np.array(list(value.values()))
    if center == "standard":
        return scaled(value[b], every, "unbiased", eps)
    return value[b] - (every.mean() if center == "mean" else 0.0)


def grpo_passk(s, b, std=True, eps=1e-6):
    ordered = sorted(s.rewards(b))
    if len(ordered) == 1 or s.reward[b] < ordered[-1]:
        return 0.0
    return (ordered[-1] - ordered[-2]) / (np.std(ordered, ddof=1) + eps if std else 1.0)


def above_history(s, b):
    known = [x for x in s.history if not isnan(x)]
    return s.reward[b] - (np.median(known) if known else np.mean(s.rewards(b)))


def optimal_value(s, b, beta1=0.5):
    found = s.reference[b]
    value = max(found) if beta1 == 0 else np.mean(found) if beta1 == inf else None
    return s.reward[b] - (beta1 * log(np.mean([exp(x / beta1) for x in found])) if value is None else value)


def gae(s, b, cut=False, gamma=1.0, lam=0.95):
    value, paid = s.at_tokens(b, s.value), s.paid(b, cut)
    after = [*value[1:], value[-1] if cut else 0.0]
    delta = [r + gamma * n - v for r, n, v in zip(paid, after, value, strict=True)]
    n = len(delta)
    return s.back(b, [sum((gamma * lam) ** (j - t) * delta[j] for j in range(t, n)) for t in range(n)])


def turns(s, b):
    """Places among the tokens under the mask, turn by turn."""
    ids = [s.turn[b][t] for t in s.places(b)]
    return [[i for i, x in enumerate(ids) if x == turn] for turn in sorted(set(ids))]


def turn_gae(s, b, gamma=1.0, lam=0.95):
    value, paid, found = s.at_tokens(b, s.value), s.paid(b), turns(s, b)
    start = [value[places[0]] for places in found] + [0.0]
    delta = [sum(paid[i] for i in p) + gamma * start[k + 1] - start[k] for k, p in enumerate(found)]
    n = len(found)
    of_turn = [sum((gamma * lam) ** (k - j) * delta[k] for k in range(j, n)) for j in range(n)]
    return s.back(b, [of_turn[k] for k, places in enumerate(found) for _ in places])


def bad(s, b, gamma=0.99, lam=0.95):
    value, paid = [*s.at_tokens(b, s.value), 0.0], s.paid(b)
    factor = [gamma if i == places[-1] else 1.0 for places in turns(s, b) for i in places]
    n = len(paid)
    delta = [paid[t] + factor[t] * value[t + 1] - value[t] for t in range(n)]
    return s.back(
        b, [sum(prod(factor[t:j]) * lam ** (j - t) * delta[j] for j in range(t, n)) for t in range(n)]
    )


def standardized(s, b, of="gae", gamma=1.0, lam=0.95, eps=1e-8):
    rows = [{"gae": gae, "bad": bad}[of](s, i, gamma=gamma, lam=lam) for i in range(7)]
    every = [rows[i][t] for i in range(7) for t in s.places(i)]
    return s.back(b, [(rows[b][t] - np.mean(every)) / (np.std(every) + eps) for t in s.places(b)])


def v_trace(s, b, rho_bar=1.0, c_bar=1.0, gamma=1.0, lam=1.0):
    # The sum that defines v, Espeholt et al., Eq. 1.
    value, paid = [*s.at_tokens(b, s.value), 0.0], s.paid(b)
    ratio = [exp(x) for x in s.at_tokens(b, s.log_rho)]
    c = [gamma * lam * min(c_bar, x) for x in ratio]
    n = len(ratio)
    delta = [min(rho_bar, ratio[t]) * (paid[t] + gamma * value[t + 1] - value[t]) for t in range(n)]
    v = [value[t] + sum(prod(c[t:j]) * delta[j] for j in range(t, n)) for t in range(n)] + [0.0]
    return s.back(b, [paid[t] + gamma * v[t + 1] - value[t] for t in range(n)])


def optimal_token_baseline(s, b, level="none", zero_tail=False):
    def energy(i, t):
        weight = {"none": lambda _: 1.0, "sequence": lambda _: s.weight(i), "token": exp}[level]
        pairs = zip(s.at_tokens(i, s.log_rho), s.at_tokens(i, s.norm), strict=True)
        return sum(weight(x) ** 2 * n for x, n in [*pairs][: t + 1])

    found = []
    for t in range(len(s.places(b))):
        each = {i: energy(i, t) for i in s.peers(b) if len(s.places(i)) > t}
        later = {i: sum(s.paid(i)[t:]) for i in each}
        baseline = sum(each[i] * later[i] for i in each) / sum(each.values())
        alone = len(s.peers(b)) == 1 or (zero_tail and len(each) == 1)
        found.append(later[b] - (0.0 if alone else baseline))
    return s.back(b, found)


def quantile(s, peers, weight, q):
    """Walk up the sorted rewards until the weights so far reach the share q."""
    total, so_far = sum(map(weight, peers)), 0.0
    for i in sorted(peers, key=lambda i: s.reward[i]):
        so_far += weight(i)
        if so_far >= q * total:
            return s.reward[i]
    raise AssertionError("shares add up to one")


def center(s, b, weight, average, peers):
    if average == "mean":
        return weighted(s, b, weight, peers)
    if average == "median":
        return s.reward[b] - quantile(s, peers, weight, 0.5)
    low, high = quantile(s, peers, weight, 0.05), quantile(s, peers, weight, 0.95)
    shares = [(weight(i), min(max(s.reward[i], low), high)) for i in peers]
    return s.reward[b] - sum(w * r for w, r in shares) / sum(w for w, _ in shares)


def optimal_baseline(s, b, norm="score", cap=inf, scope="group", average="mean"):
    def energy(i):
        squared = s.sequence_norm[i] if norm == "score" else sum(s.at_tokens(i, s.norm))
        return min(s.weight(i), cap) ** 2 * squared

    return center(s, b, energy, average, s.peers(b) if scope == "group" else [*range(7)])


def optimal_baseline_author(s, b, cap=8.0, average="mean"):
    def energy(i):
        return (min(s.weight(i), cap) * s.weight(i)) ** 2 * s.sequence_norm[i]

    return center(s, b, energy, average, s.peers(b))


ROWS = {
    "raw": lambda s, b, baseline=0.0, scale=1.0: scale * (s.reward[b] - baseline),
    "nsr": lambda s, b, best=1.0: -1.0 if s.reward[b] < best else 0.0,
    "group_mean": deviation, "group_std": group_std, "shaped_std": bent, "group_std@nemo-rl": nemo_rl,
    "leave_one_out": leave_one_out,
    "group_median": lambda s, b: s.reward[b] - np.median(s.rewards(b)),
    "asymre": lambda s, b, shift=-0.1: deviation(s, b) - shift,
    "asymre@trinity": lambda s, b, shift=-0.1: (
        s.reward[b] if len(s.peers(b)) == 1 else deviation(s, b) - shift
    ),
    "positive_amplified": lambda s, b, **of: amplified(s, b, None, **of),
    "positive_amplified@author": lambda s, b, **of: amplified(s, b, 1.0, **of),
    "batch_std": batch_std, "batch_std@areal": areal,
    "opo": lambda s, b: weighted(s, b, lambda i: len(s.places(i))),
    "optimal_baseline": optimal_baseline, "optimal_baseline@author": optimal_baseline_author,
    "optimal_token_baseline": optimal_token_baseline, "importance_mean": importance_mean,
    "tree_opo": tree_opo, "max_at_k": max_at_k, "max_at_k@verl": grpo_passk,
    "median_of_history": above_history, "recalibrated": lambda s, b: max(0.0, above_history(s, b)),
    "remax": lambda s, b: s.reward[b] - s.greedy[b], "optimal_value": optimal_value,
    "optimal_value@author": lambda s, b, beta1=inf: optimal_value(s, b, beta1),
    "gae": gae, "egae": lambda s, b, **of: gae(s, b, cut=s.truncated[b], **of),
    "v_trace": v_trace, "turn_gae": turn_gae, "bad": bad, "standardized": standardized,
}  # fmt: skip

BY_CRITIC = {"gamma": 0.8, "lam": 0.6}
AVERAGES = [{"average": "median"}, {"average": "winsorized"}]
SETTINGS = {
    "raw": [{"baseline": 0.5, "scale": 3.0}], "nsr": [{"best": 0.5}],
    "group_std": [{"std": "population", "eps": 0.3}],
    "shaped_std": [{"knee": 0.4, "above": 0.5, "below": 2.0, "eps": 0.3}],
    "group_std@nemo-rl": [{"eps": 0.2}],
    "asymre": [{"shift": 0.3}], "asymre@trinity": [{"shift": 0.3}],
    "positive_amplified": [{"alpha": 2.0, "best": 0.5}],
    "positive_amplified@author": [{"alpha": 2.0}, {"best": 0.5}],
    "batch_std": [{"center": True, "eps": 0.3}], "batch_std@areal": [{"eps": 0.3}, {"reward_norm": False}],
    "optimal_baseline": [*AVERAGES, {"norm": "proxy", "cap": 1.1}, {"scope": "batch", **AVERAGES[0]}],
    "optimal_baseline@author": [*AVERAGES, {"cap": 1.1}],
    "optimal_token_baseline": [{"level": "token"}, {"level": "sequence", "zero_tail": True}],
    "importance_mean": [{"eta": 1.1}, {"normalize": False}],
    "max_at_k": [{"k": 1}, {"k": 3, "center": "mean"}, {"k": 2, "center": "standard", "eps": 0.3}],
    "max_at_k@verl": [{"eps": 0.3}, {"std": False}],
    "optimal_value": [{"beta1": 0.0}, {"beta1": inf}, {"beta1": 2.0}],
    "optimal_value@author": [{"beta1": 2.0}],
    "v_trace": [{"rho_bar": 1.3, "c_bar": 0.9, **BY_CRITIC}, {"rho_bar": inf, "c_bar": inf, "lam": 0.7}],
    **{name: [BY_CRITIC] for name in ("gae", "egae", "turn_gae", "bad")},
    "standardized": [{**BY_CRITIC, "eps": 0.3}, {"of": "bad", **BY_CRITIC}],
}  # fmt: skip
