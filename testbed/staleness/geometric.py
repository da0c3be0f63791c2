"""Geometric ages: each further step of age is less frequent by the same factor."""

import numpy as np

from testbed.errors import UserError
from testbed.staleness import schedule
from testbed.staleness.age_distribution import SLICES, AgeDistribution
from testbed.staleness.by_age import ByAge, by_distribution

LONGEST = 8
"""Default longest age in units of the lag: an unbounded distribution has about exp(-8) of its mass beyond."""


@schedule("geometric", source="Mitliagkas et al. (2016), Asynchrony begets momentum, arXiv:1605.09774")
def geometric(lag: int, *, longest: int = -1, slices: int = SLICES) -> ByAge:
    """P(age = k) = q^k / (1 + q + ... + q^longest), truncated, with the q that gives mean age lag.

    longest: the largest age, at least 2 lag (then all ages are equally frequent); -1 uses 8 lag. slices:
    batch parts with independent ages.
    """
    last = LONGEST * lag if longest == -1 else longest
    if lag < 0 or last < 2 * lag:
        raise UserError(
            f"longest is {last} and lag {lag}: ages that become rarer with age and end at {last} have means "
            f"from 0 to {last / 2:g}; expected lag >= 0 and longest >= {2 * max(lag, 0)}."
        )
    if lag == 0:
        return by_distribution("geometric", AgeDistribution.of([0], [1.0]), slices)
    return by_distribution("geometric", cut_geometric(lag, last), slices)


def cut_geometric(mean: float, longest: int) -> AgeDistribution:
    """Return P(k) ~ q^k on 0..longest with the given mean, 0 < mean <= longest / 2."""
    from scipy.optimize import brentq  # half a second that other schedules need not wait

    age_K = np.arange(longest + 1)

    def cut(log_q: float) -> AgeDistribution:
        return AgeDistribution.of(age_K, np.exp(log_q * age_K))

    # Untruncated, q = mean / (1 + mean); truncation needs more, up to q = 1 with mean longest / 2.
    low = float(np.log(mean / (1 + mean)))
    if cut(0.0).mean - mean <= 0:
        return cut(0.0)
    return cut(float(brentq(lambda log_q: cut(log_q).mean - mean, 1.01 * low, 0.0, xtol=1e-15, rtol=1e-14)))
