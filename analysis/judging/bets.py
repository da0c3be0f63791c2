"""E-values: the wealth of bets against "x is at most t", one function per kind of number.

An e-value has mean at most 1 while the bet-against statement holds, so 1/e bounds the chance of so much
wealth (Ville 1939). All kinds stay valid when seeds are added until any stopping time, and they multiply: the
wealth of a first run is the stake of the next.

    shares(won, chance)   a win has more than its chance: Beta-binomial mixture
    median(x, t)          the median is above t: `shares` of the signs of x - t
    mean(x, t)            the mean is above t: Gaussian units, unknown spread (right-Haar mixture)

Each returns (above, below): evidence that the quantity is above t, and that it is below. `above` falls and
`below` rises in t, so one pair of bets stands behind every word of a verdict (docs/theory/verdicts.md). Units
must be in the order in which they arrived if sampling can stop early.
"""

import math
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from envs.arrays import Floats

EFFECT_SIZE = 1.0
"""Standard deviation of the half-normal prior on mean / spread that `mean` mixes over."""
LARGEST = 700.0
"""Largest log e-value that is reported; exp of more overflows."""
_POINTS = 400
TABLED = 1023
"""Number of units up to which bets at even odds come from a table that all claims share."""


def shares(won: float, lost: float, chance: float = 0.5) -> tuple[float, float]:
    """Return e-values that a win has more, and less, than its chance c, by `won` wins and `lost` losses.

    above = int_c^1 p^won (1-p)^lost dp / ((1 - c) c^won (1-c)^lost): bets on every larger chance, mixed
    evenly. Each is a supermartingale while a win has at most the chance c. Source: Robbins (1970), section 2;
    Waudby-Smith and Ramdas (2024), section 4.
    """
    return _more(won, lost, chance), _more(lost, won, 1 - chance)


@lru_cache(maxsize=100_000)
def _more(won: float, lost: float, chance: float) -> float:
    with np.errstate(divide="ignore"):
        tail = float(np.log(special.betaincc(won + 1, lost + 1, chance)))
    log_e = float(special.betaln(won + 1, lost + 1)) + tail - math.log1p(-chance)
    return _exp(log_e - won * math.log(chance) - lost * math.log1p(-chance))


def median(x_N: ArrayLike, t: float) -> tuple[float, float]:
    """Return the e-values that the median is above t, and below. A unit equal to t loses both bets."""
    x_N = np.asarray(x_N, dtype=np.float64)
    # A median of at most t bounds P(x > t) by 1/2 of all units; without ties, nine ones among ninety zeros
    # would say that the median is above 0.
    above, below = int((x_N > t).sum()), int((x_N < t).sum())
    return _more(above, x_N.size - above, 0.5), _more(below, x_N.size - below, 0.5)


def mean(x_N: ArrayLike, t: float) -> tuple[float, float]:
    """Return the e-values that the mean is above t, and below, of Gaussian units of unknown spread.

    above = E_d[f(T | d) / f(T | 0)], T Student's statistic with n - 1 degrees of freedom, f its noncentral
    density, d = (mean - t) / spread half-normal: a ratio of maximal invariants, hence an e-process at d = 0
    (Perez-Ortiz et al. 2024, corollary 8); it grows in T, so at d < 0 its mean is smaller. Units that are all
    equal have no spread, so the bet is on their signs. Fewer than two units: no bet.
    """
    x_N = np.asarray(x_N, dtype=np.float64)
    if x_N.size < 2:
        return 1.0, 1.0
    center, spread = float(x_N.mean()), float(x_N.std(ddof=1))
    # Rounding of equal values would pass for a tiny spread and give a huge statistic.
    if spread <= 1e-12 * max(abs(center), abs(t)):
        return median(x_N, t) if abs(center - t) > 1e-12 * max(abs(center), abs(t)) else (1.0, 1.0)
    student = (center - t) / spread * math.sqrt(x_N.size)
    return at_statistic(student, x_N.size), at_statistic(-student, x_N.size)


def at_statistic(statistic: float, n: int) -> float:
    """Return the mixture of noncentral densities over the central one, by quadrature over the spread.

    f(T | d) / f(T | 0) = exp(-n d^2 / 2) E_s[exp(sqrt(n) d s x)], x = T / sqrt(T^2 + n - 1), s ~ chi(n); the
    mean over d has a closed form in s.
    """
    x = statistic / math.hypot(statistic, math.sqrt(n - 1))
    precision = n + EFFECT_SIZE**-2
    # For x > 0 the mean over d grows like exp(slope^2 / (2 precision)), which widens the density of s.
    left = 1 - n * x**2 / precision if x > 0 else 1.0
    # chi(n) lies within a few units of sqrt(n), and so do all points where n is large.
    start, end = (max(0.0, math.sqrt(n) + far) / math.sqrt(left) for far in (-40.0, 9.0))
    s_K = np.linspace(start, end, _POINTS + 1)[1:]
    log_chi_K = (n - 1) * np.log(s_K) - s_K**2 / 2
    slope_K = math.sqrt(n) * x * s_K
    log_mean_K = slope_K**2 / (2 * precision) + special.log_ndtr(slope_K / math.sqrt(precision))
    width = (end - start) / _POINTS
    total = float(special.logsumexp(log_chi_K + log_mean_K)) + math.log(width)
    norm = (n / 2 - 1) * math.log(2) + math.lgamma(n / 2)
    return _exp(math.log(2 / EFFECT_SIZE) - 0.5 * math.log(precision) + total - norm)


def median_sequence(x_N: ArrayLike, level: float = 0.05) -> tuple[float, float]:
    """Return the ends of a confidence sequence for the median: the values that no bet has ever ruled out.

    It covers at every n at once with probability 1 - level, as the largest wealth so far is compared. Ends
    are values of x, or -inf and inf while there are too few units.
    """
    x_N = np.asarray(x_N, dtype=np.float64)
    value_C = np.unique(x_N)
    between_C = (value_C[1:] + value_C[:-1]) / 2
    # All thresholds between two neighbors get the same bets, so one of them stands for all.
    up_C = _largest_so_far(x_N[None] > np.array([-np.inf, *between_C])[:, None])
    down_C = _largest_so_far(x_N[None] < np.array([*between_C, np.inf])[:, None])
    low = value_C[up_C >= 2 / level].max(initial=-np.inf)
    high = value_C[down_C >= 2 / level].min(initial=np.inf)
    return float(low), float(high)


def share_sequence(won_N: ArrayLike, level: float = 0.05, grid: int = 200) -> tuple[float, float]:
    """Return the ends of a confidence sequence for the probability of a win, rounded outwards to 1/grid."""
    won_CN = np.asarray(won_N, dtype=bool)[None]
    chance_C = np.arange(1, grid) / grid
    up_C = _largest_so_far(won_CN, chance_C[:, None])
    down_C = _largest_so_far(~won_CN, 1 - chance_C[:, None])
    low = chance_C[up_C >= 2 / level].max(initial=0.0)
    high = chance_C[down_C >= 2 / level].min(initial=1.0)
    return float(low), float(high)


def _largest_so_far(won_CN: np.ndarray, chance_C1: ArrayLike = 0.5) -> Floats:
    """Return the largest wealth so far of `shares`'s bet on more wins, for every candidate."""
    lost_CN = np.cumsum(~won_CN, axis=-1)
    won_CN = np.cumsum(won_CN, axis=-1)
    if np.ndim(chance_C1) == 0 and won_CN.shape[-1] <= TABLED:
        log_e_CN = _even(1 << won_CN.shape[-1].bit_length())[won_CN, lost_CN]
    else:
        log_e_CN = _log_e(won_CN, lost_CN, np.asarray(chance_C1, dtype=np.float64))
    return np.asarray(np.exp(np.clip(log_e_CN.max(axis=-1, initial=0.0), 0.0, LARGEST)))


def _log_e(won: np.ndarray, lost: np.ndarray, c: Any) -> Floats:
    with np.errstate(divide="ignore"):
        tail = np.log(special.betaincc(won + 1, lost + 1, c))
    log_e = special.betaln(won + 1, lost + 1) + tail - np.log1p(-np.asarray(c))
    return np.asarray(log_e - won * np.log(c) - lost * np.log1p(-np.asarray(c)))


@cache
def _even(size: int) -> Floats:
    """Return the log of `shares`'s bet on more wins than half by wins and losses, both below `size`."""
    won_WL, lost_WL = np.indices((size, size))
    return _log_e(won_WL, lost_WL, np.float64(0.5))


def _exp(log_e: float) -> float:
    return math.exp(min(log_e, LARGEST))
