"""Advantages worked out one response at a time, in numpy; imports none of our code.

ROWS[name](s, b) -> the advantage of response b of signals s, a number, or a list with one entry per place
(0 outside the mask) for an advantage per token.
"""

from dataclasses import dataclass
from itertools import combinations
from math import exp, isnan, log, prod

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


def deviation(s, b):
    return s.reward[b] - np.mean(s.rewards(b))


def group_std(s, b, eps=1e-6):
    found = s.rewards(b)
    return 0.0 if len(found) == 1 else deviation(s, b) / (np.std(found, ddof=1) + eps)


def bent(s, b):
    def f(r):
        return 0.8 + 0.01 * np.log(1 + r - 0.8) if r > 0.8 else 1.8 - np.exp(0.8 - r)

    found = np.array([f(r) for r in s.rewards(b)])
    return 0.0 if len(found) == 1 else (f(s.reward[b]) - found.mean()) / (np.std(found, ddof=1) + 1e-6)


def nemo_rl(s, b):
    others = [s.reward[i] for i in s.peers(b) if i != b]
    if not others:
        return 0.0
    std = np.std(others, ddof=1) if len(others) > 1 else 0.0
    return (s.reward[b] - np.mean(others)) / (std + 1e-6 if std > 0 else 1.0)


def leave_one_out(s, b):
    others = [s.reward[i] for i in s.peers(b) if i != b]
    return s.reward[b] - (np.mean(others) if others else 0.0)


def amplified(s, b, top):
    if s.reward[b] >= 1.0:
        return top
    return deviation(s, b) * (3.0 if deviation(s, b) > 0 else 1.0)


def batch_std(s, b):
    return (s.reward[b] - np.mean(s.reward)) / (np.std(s.reward, ddof=1) + 1e-8)


def areal(s, b):
    every = [group_std(s, i, 1e-5) for i in range(7) for _ in s.places(i)]
    return (group_std(s, b, 1e-5) - np.mean(every)) / (np.std(every, ddof=1) + 1e-5)


def weighted(s, b, weight):
    """R - sum weight R / sum weight over the group."""
    each = {i: weight(i) for i in s.peers(b)}
    return s.reward[b] - sum(w * s.reward[i] for i, w in each.items()) / sum(each.values())


def tree_opo(s, b):
    # Response 3 (0.5) must stay 0.01 above response 0 (0.495): both move evenly, the sum stays.
    if b not in (0, 3):
        return deviation(s, b)
    middle = (deviation(s, 0) + deviation(s, 3)) / 2
    return middle + (0.005 if b == 3 else -0.005)


def best_of_two(s, b):
    found = s.peers(b)
    if len(found) == 1:
        return s.reward[b]
    pairs = list(combinations(found, 2))
    return len(found) / len(pairs) * sum(max(s.reward[i] for i in p) for p in pairs if b in p)


def grpo_passk(s, b):
    ordered = sorted(s.rewards(b))
    if len(ordered) == 1 or s.reward[b] < ordered[-1]:
        return 0.0
    return (ordered[-1] - ordered[-2]) / (np.std(ordered, ddof=1) + 1e-6)


def history_median(s):
    known = sorted(x for x in s.history if not isnan(x))
    return (known[1] + known[2]) / 2


def optimal_value(s, b, beta=0.5):
    return s.reward[b] - beta * log(np.mean([exp(x / beta) for x in s.reference[b]]))


def gae(s, b, cut=False, decay=0.95):
    value, paid = s.at_tokens(b, s.value), s.paid(b, cut)
    after = [*value[1:], value[-1] if cut else 0.0]
    delta = [r + n - v for r, n, v in zip(paid, after, value, strict=True)]
    n = len(delta)
    return s.back(b, [sum(decay ** (j - t) * delta[j] for j in range(t, n)) for t in range(n)])


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


def standardized(s, b):
    every = [x for i in range(7) for t, x in enumerate(gae(s, i)) if s.mask[i][t] == "1"]
    row = [(gae(s, b)[t] - np.mean(every)) / (np.std(every) + 1e-8) for t in s.places(b)]
    return s.back(b, row)


def v_trace(s, b):
    # The sum that defines v, Espeholt et al., Eq. 1.
    value, paid = [*s.at_tokens(b, s.value), 0.0], s.paid(b)
    ratio = [min(1.0, exp(x)) for x in s.at_tokens(b, s.log_rho)]
    n = len(ratio)
    delta = [ratio[t] * (paid[t] + value[t + 1] - value[t]) for t in range(n)]
    v = [value[t] + sum(prod(ratio[t:j]) * delta[j] for j in range(t, n)) for t in range(n)] + [0.0]
    return s.back(b, [paid[t] + v[t + 1] - value[t] for t in range(n)])


def optimal_token_baseline(s, b):
    peers = s.peers(b)
    found = []
    for t in range(len(s.places(b))):
        long = [i for i in peers if len(s.places(i)) > t]
        energy = {i: sum(s.at_tokens(i, s.norm)[: t + 1]) for i in long}
        later = {i: sum(s.paid(i)[t:]) for i in long}
        baseline = sum(energy[i] * later[i] for i in long) / sum(energy.values())
        found.append(later[b] - (baseline if len(peers) > 1 else 0.0))
    return s.back(b, found)


ROWS = {
    "raw": lambda s, b: s.reward[b],
    "nsr": lambda s, b: -1.0 if s.reward[b] < 1.0 else 0.0,
    "group_mean": deviation,
    "group_std": group_std,
    "shaped_std": bent,
    "group_std@nemo-rl": nemo_rl,
    "leave_one_out": leave_one_out,
    "group_median": lambda s, b: s.reward[b] - np.median(s.rewards(b)),
    "asymre": lambda s, b: deviation(s, b) + 0.1,
    "asymre@trinity": lambda s, b: s.reward[b] if b == 6 else deviation(s, b) + 0.1,
    "positive_amplified": lambda s, b: amplified(s, b, 3.0),
    "positive_amplified@author": lambda s, b: amplified(s, b, 1.0),
    "batch_std": batch_std,
    "batch_std@areal": areal,
    "opo": lambda s, b: weighted(s, b, lambda i: len(s.places(i))),
    "optimal_baseline": lambda s, b: weighted(s, b, lambda i: s.weight(i) ** 2 * s.sequence_norm[i]),
    "optimal_baseline@author": lambda s, b: weighted(
        s, b, lambda i: (min(s.weight(i), 8.0) * s.weight(i)) ** 2 * s.sequence_norm[i]
    ),
    "optimal_token_baseline": optimal_token_baseline,
    "importance_mean": lambda s, b: weighted(s, b, lambda i: min(s.weight(i), 2.0)),
    "tree_opo": tree_opo,
    "max_at_k": best_of_two,
    "max_at_k@verl": grpo_passk,
    "median_of_history": lambda s, b: s.reward[b] - history_median(s),
    "recalibrated": lambda s, b: max(0.0, s.reward[b] - history_median(s)),
    "remax": lambda s, b: s.reward[b] - s.greedy[b],
    "optimal_value": optimal_value,
    "optimal_value@author": lambda s, b: s.reward[b] - np.mean(s.reference[b]),
    "gae": gae,
    "egae": lambda s, b: gae(s, b, cut=s.truncated[b]),
    "v_trace": v_trace,
    "turn_gae": turn_gae,
    "bad": bad,
    "standardized": standardized,
}


def energy(s, i):
    return s.weight(i) ** 2 * s.sequence_norm[i]


def steep(s, i):
    return (min(s.weight(i), 8.0) * s.weight(i)) ** 2 * s.sequence_norm[i]


def quantile(s, b, weight, q):
    """Walk up the sorted rewards until the weights so far reach the share q."""
    total, so_far = sum(weight(s, i) for i in s.peers(b)), 0.0
    for i in sorted(s.peers(b), key=lambda i: s.reward[i]):
        so_far += weight(s, i)
        if so_far >= q * total:
            return s.reward[i]
    raise AssertionError("shares add up to one")


def above_median(weight):
    return lambda s, b: s.reward[b] - quantile(s, b, weight, 0.5)


def above_winsorized(weight):
    def row(s, b):
        low, high = quantile(s, b, weight, 0.05), quantile(s, b, weight, 0.95)
        shares = [(weight(s, i), min(max(s.reward[i], low), high)) for i in s.peers(b)]
        return s.reward[b] - sum(w * r for w, r in shares) / sum(w for w, _ in shares)

    return row


CASES = [
    ("optimal_baseline", {"average": "median"}, above_median(energy)),
    ("optimal_baseline", {"average": "winsorized"}, above_winsorized(energy)),
    ("optimal_baseline@author", {"average": "median"}, above_median(steep)),
    ("optimal_baseline@author", {"average": "winsorized"}, above_winsorized(steep)),
    ("turn_gae", {"gamma": 0.8, "lam": 0.6}, lambda s, b: turn_gae(s, b, 0.8, 0.6)),
    ("bad", {"gamma": 0.8, "lam": 0.6}, lambda s, b: bad(s, b, 0.8, 0.6)),
]
