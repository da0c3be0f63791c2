"""Number of seeds that a paired t test needs for a given gap and standard deviation.

A gap is a mean difference of paired seeds, a spread the standard deviation of these differences. For
independent arms the spread is sqrt(2) times that of one arm's seeds.
"""

import math
from bisect import bisect_left

from scipy import stats

from testbed.errors import UserError

MOST = 100_000
"""Most seeds of a t test."""


def t_power(seeds: int, gap: float, spread: float, alpha: float) -> float:
    """Return the probability that a two-sided t test of normal pairs finds the gap, with the right sign.

    P(T > t_{1 - alpha/2}) for T noncentral t with n - 1 degrees of freedom and center sqrt(n) gap / spread.
    """
    if seeds < 2:
        return 0.0
    most = stats.t.ppf(1 - alpha / 2, seeds - 1)
    return float(stats.nct.sf(most, seeds - 1, math.sqrt(seeds) * abs(gap) / spread))


def t_seeds(gap: float, spread: float, alpha: float = 0.05, power: float = 0.8) -> int | None:
    """Return the fewest seeds with which that test has the power; None if MOST are too few."""
    check(gap, spread, alpha, power)
    below = bisect_left(range(2, MOST + 1), power, key=lambda n: t_power(n, gap, spread, alpha))
    return below + 2 if below < MOST - 1 else None


def check(gap: float, spread: float, alpha: float, power: float) -> None:
    """Raise UserError for invalid numbers."""
    for name, value in (("gap", abs(gap)), ("spread", spread)):
        if not 0 < value < math.inf:
            raise UserError(f"The {name} is {value:g}, expected a number above 0.")
    if not 0 < alpha < 1:
        raise UserError(f"alpha is {alpha:g}, expected a chance between 0 and 1.")
    if not alpha < power < 1:
        raise UserError(f"power is {power:g}, expected a chance between alpha, {alpha:g}, and 1.")
