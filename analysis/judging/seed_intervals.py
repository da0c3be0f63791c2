"""Intervals over seeds and over yes/no outcomes; every interval carries the name of its method.

Which one: `median_interval` for bands in figures (exact for any distribution and few seeds),
`student_interval` for a mean of roughly normal numbers, `wilson_interval` for a share,
`clopper_pearson_interval` where coverage must not fall below its level.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from testbed.errors import UserError

COUNTED = 1000
"""Most values for which binomial coefficients are added as whole numbers; 2^n ends at 2^1023."""


@dataclass(frozen=True)
class Interval:
    """center, low, high: estimate and interval; n: number of values; method, level: what it promises."""

    center: float
    low: float
    high: float
    n: int
    method: str
    level: float


def _values(x_N: ArrayLike) -> NDArray[np.float64]:
    values_N = np.asarray(x_N, dtype=np.float64).ravel()
    if values_N.size == 0 or np.isnan(values_N).any():
        missing = int(np.isnan(values_N).sum())
        raise UserError(
            f"An interval was asked of {values_N.size} values, {missing} of them NaN; it needs at least one "
            "and no NaN. Decide first how a missing seed counts."
        )
    return values_N


def median_interval(x_N: ArrayLike, level: float = 0.95) -> Interval:
    """Return the median and the order statistics x_(k), x_(n+1-k) that cover the distribution's median.

    Coverage is 1 - 2 P(Binomial(n, 1/2) < k), exact for every continuous distribution. k is the largest with
    coverage of at least `level`. With fewer than 6 seeds none reaches 0.95. The interval is then the smallest
    and largest seed, and its `level` is 1 - 2^(1-n), i.e. 0.5, 0.75, 0.875, 0.94 for n = 2 … 5.
    """
    values_N = np.sort(_values(x_N))
    n = values_N.size
    rank, coverage = _order_statistic(n, level)
    method = "range of the seeds" if rank == 1 else "order statistics"
    return Interval(
        float(np.median(values_N)), float(values_N[rank - 1]), float(values_N[n - rank]), n, method, coverage
    )


def _order_statistic(n: int, level: float) -> tuple[int, float]:
    """Return k and the coverage of x_(k), x_(n+1-k)."""
    if n > COUNTED:
        below_K = special.bdtr(np.arange((n + 1) // 2), n, 0.5)  # P(Binomial <= k - 1) for k = 1, 2, …
        rank = max(1, int((1.0 - 2.0 * below_K >= level).sum()))
        return rank, float(1.0 - 2.0 * below_K[rank - 1])
    rank, coverage, below = 1, 1.0 - 2.0 ** (1 - n), 1
    while rank < (n + 1) // 2:
        below += math.comb(n, rank)
        wider = 1.0 - 2.0 * below / 2.0**n
        if wider < level:
            break
        rank, coverage = rank + 1, wider
    return rank, coverage


def student_interval(x_N: ArrayLike, level: float = 0.95) -> Interval:
    """Return mean ± t(n-1) s / sqrt(n); valid for roughly normal values. One value has no bounds."""
    values_N = _values(x_N)
    n, mean = values_N.size, float(values_N.mean())
    if n == 1:
        return Interval(mean, -math.inf, math.inf, 1, "Student t", level)
    half = float(special.stdtrit(n - 1, 0.5 + level / 2)) * float(values_N.std(ddof=1)) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n, "Student t", level)


def _counts(successes: int, n: int) -> None:
    if not 0 <= successes <= n or n < 1:
        raise UserError(f"A share needs 0 <= successes <= n and n >= 1; given {successes} of {n}.")


def wilson_interval(successes: int, n: int, level: float = 0.95) -> Interval:
    """Return the share and Wilson's score interval (Wilson 1927), which works at 0 and n too."""
    _counts(successes, n)
    z = float(special.ndtri(0.5 + level / 2))
    share = successes / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low = 0.0 if successes == 0 else max(middle - half, 0.0)
    high = 1.0 if successes == n else min(middle + half, 1.0)
    return Interval(share, low, high, n, "Wilson score", level)


def clopper_pearson_interval(successes: int, n: int, level: float = 0.95) -> Interval:
    """Return the share and its Clopper-Pearson interval, with tails of (1 - level)/2; never too narrow."""
    _counts(successes, n)
    tail = (1 - level) / 2
    low = 0.0 if successes == 0 else float(special.betaincinv(successes, n - successes + 1, tail))
    high = 1.0 if successes == n else float(special.betaincinv(successes + 1, n - successes, 1 - tail))
    return Interval(successes / n, low, high, n, "Clopper-Pearson", level)
