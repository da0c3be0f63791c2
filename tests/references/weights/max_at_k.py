"""Row of max@k: every subset of a group, one by one."""

from itertools import combinations

import numpy as np


def max_at_k(s, rows, k=2):
    peers = [row for row in rows if row.group == s.group]
    subsets = list(combinations(peers, min(k, len(peers))))
    with_s = [subset for subset in subsets if any(row is s for row in subset)]
    value = sum(np.prod([np.prod(row.r) for row in s]) * max(row.reward for row in s) for s in with_s)
    return np.full(s.n, len(peers) / len(subsets) * value)


WEIGHTS = {"max_at_k": max_at_k}

F1 = [
    # Groups of two, rewards (1, -1), W = (.75, 2.5): the pair weighs .75 * 2.5 * 1 * 2 / 1; w/A = +-that.
    ("max_at_k", {}, (3.75, 3.75), (-3.75, -3.75, -3.75)),
    ("max_at_k", {"k": 1}, (0.75, 0.75), (2.5, 2.5, 2.5)),
    # To first order the pair's product .75 * 2.5 is 1 - .25 + 1.5.
    ("max_at_k", {"order": "first"}, (4.5, 4.5), (-4.5, -4.5, -4.5)),
]
