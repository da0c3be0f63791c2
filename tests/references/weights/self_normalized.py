"""Row of the self-normalized weight."""

import math


def self_normalized(s, rows):
    products = [math.prod(row.r) for row in rows]
    return s.adv * len(rows) * math.prod(s.r) / math.fsum(products) * s.ones


WEIGHTS = {"self_normalized": self_normalized}

# F1: products 1.5 * 0.5 = 0.75 and 0.5 * 1.25 * 4 = 2.5; shares 1.5 / 3.25 and 5 / 3.25.
F1 = [("self_normalized", {}, (0.4615, 0.4615), (1.5385, 1.5385, 1.5385))]
