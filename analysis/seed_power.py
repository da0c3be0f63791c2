"""How many seeds a comparison needs, before a run: by a t test of pairs, or by bets that may be looked at.

A gap is a mean difference of paired seeds, a spread the standard deviation of these differences. Arms that
share nothing have sqrt(2) times the spread of one arm's seeds.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import logsumexp

from analysis.experiment import Stop
from envs.arrays import Floats
from testbed.errors import UserError
from testbed.testing.e_process import SHARES

MOST = 100_000
"""Most seeds that a t test is given."""
CAP = 512
"""Most seeds that a run of bets is given."""


def t_power(seeds: int, gap: float, spread: float, alpha: float) -> float:
    """Return the chance that a two-sided t test of so many normal pairs finds the gap, on its own side.

    P(T > t_{1 - alpha/2}) for T noncentral t with n - 1 degrees of freedom and center sqrt(n) gap / spread.
    """
    if seeds < 2:
        return 0.0
    most = stats.t.ppf(1 - alpha / 2, seeds - 1)
    return float(stats.nct.sf(most, seeds - 1, math.sqrt(seeds) * abs(gap) / spread))


def t_seeds(gap: float, spread: float, alpha: float = 0.05, power: float = 0.8) -> int:
    """Return the fewest seeds with which that test has the power. Raises UserError where MOST do not do."""
    check(gap, spread, alpha, power)
    low, high = 1, 2
    while t_power(high, gap, spread, alpha) < power:
        low, high = high, 2 * high
        if low > MOST:
            raise UserError(f"A gap of {gap:g} at a spread of {spread:g} takes more than {MOST:,} seeds.")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if t_power(middle, gap, spread, alpha) >= power else (middle, high)
    return high


def agreeing(gap: float, spread: float) -> float:
    """Return the chance that one normal difference has the sign of the gap."""
    return float(stats.norm.cdf(abs(gap) / spread))


def decided(chance: float, stop: Stop) -> Floats:
    """Return the chance that a run is decided at or before each of its looks, for the right side.

    chance: that a seed agrees. Exact: the wealth after n seeds depends on how many of them agreed, so that
    (seeds that agreed, was the wealth ever enough) is a chain; a look wants a median on the same side too.
    """
    agreed_K = np.arange(stop.cap + 1)
    poor_K, rich_K = (np.zeros(stop.cap + 1) for _ in range(2))
    poor_K[0], total, at_look = 1.0, 0.0, []
    for n in range(1, stop.cap + 1):
        poor_K, rich_K = _one_more(poor_K, chance), _one_more(rich_K, chance)
        enough_K = _enough(n, agreed_K, stop.level)
        rich_K, poor_K = rich_K + poor_K * enough_K, poor_K * ~enough_K
        if n % stop.block == 0:
            ends_K = rich_K * (agreed_K > n / 2)
            total += ends_K.sum()
            rich_K = rich_K - ends_K
            at_look.append(total)
    return np.array(at_look)


def _one_more(law_K: Floats, chance: float) -> Floats:
    """Return the law of the seeds that agreed after one seed more."""
    return (1 - chance) * law_K + chance * np.concatenate(([0.0], law_K[:-1]))


def _enough(n: int, agreed_K: NDArray[np.int64], level: float) -> NDArray[np.bool_]:
    """Return whether n seeds of which so many agreed have a wealth of 2 / level, see analysis.sequential."""
    path_KS = np.multiply.outer(agreed_K, np.log1p(SHARES)) + np.multiply.outer(
        n - agreed_K, np.log1p(-SHARES)
    )
    log_wealth_K = logsumexp(path_KS, axis=-1) - math.log(len(SHARES))
    return (agreed_K <= n) & (log_wealth_K >= math.log(2 / level))


def bet_seeds(chance: float, stop: Stop, power: float = 0.8) -> int | None:
    """Return the smallest cap, in whole blocks up to CAP, with which two runs both decide with the power."""
    found = decided(chance, replace(stop, cap=CAP // stop.block * stop.block)) ** 2 >= power
    return (int(found.argmax()) + 1) * stop.block if found.any() else None


def check(gap: float, spread: float, alpha: float, power: float) -> None:
    """Raise UserError for numbers that nothing can be planned with."""
    for name, value in (("gap", abs(gap)), ("spread", spread)):
        if not 0 < value < math.inf:
            raise UserError(f"The {name} is {value:g}, expected a number above 0.")
    if not 0 < alpha < 1:
        raise UserError(f"alpha is {alpha:g}, expected a chance between 0 and 1.")
    if not alpha < power < 1:
        raise UserError(f"power is {power:g}, expected a chance between alpha, {alpha:g}, and 1.")
