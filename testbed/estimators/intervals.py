"""Intervals for the mean of independent terms [..., N], such as Estimate.terms_N of a linear estimator.

hoeffding, empirical_bernstein, betting: valid at every N for terms in a range known in advance. hcope, a
lower bound, needs only terms >= 0; log_smoothing_bound needs only rewards >= 0. student and bootstrap are
approximate and undercover most with heavy-tailed weights: large weights that were not drawn are invisible.
"""

import math
import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from envs.arrays import Floats
from testbed.errors import UserError
from testbed.estimators.logged_rounds import normalized

SIDES = ("two", "lower", "upper")
BISECTIONS = 50
CELLS = 2**22
"""Truncated terms held in memory at once."""
LARGEST_BET = 0.5
"""Largest share of the wealth that one bet may lose."""


@dataclass(frozen=True, eq=False)
class Interval:
    """Interval [low, high], each [...], with nominal level and method; one-sided ones end at infinity."""

    low: Floats
    high: Floats
    level: float
    method: str


def hoeffding(
    terms_N: ArrayLike, *, low: float, high: float, level: float = 0.95, side: str = "two"
) -> Interval:
    """mean +- (high - low) sqrt(ln(1/delta) / (2 N)), delta = (1 - level)/2 when two-sided.

    Covers at every N for independent terms in a range [low, high] known in advance, such as 0 to w_max r_max;
    the largest term of the sample is not such a bound. Source: Hoeffding (1963).

    Raises UserError for terms outside the range.
    """
    x_N, delta = _bounded(terms_N, low, high), _delta(level, side)
    radius = (high - low) * math.sqrt(math.log(1 / delta) / (2 * x_N.shape[-1]))
    return _around(x_N.mean(-1), radius, level, side, "Hoeffding")


def empirical_bernstein(
    terms_N: ArrayLike, *, low: float, high: float, level: float = 0.95, side: str = "two"
) -> Interval:
    """mean +- sqrt(2 S^2 ln(2/delta) / N) + 7 (high - low) ln(2/delta) / (3 (N - 1)), delta as in hoeffding.

    Two-sided the constant is ln(4/(1 - level)). Source: Maurer & Pontil (2009), theorem 4; at least 2 terms.
    """
    x_N, delta = _bounded(terms_N, low, high), _delta(level, side)
    n = _at_least_two(x_N)
    log = math.log(2 / delta)
    radius = np.sqrt(2 * x_N.var(-1, ddof=1) * log / n) + 7 * (high - low) * log / (3 * (n - 1))
    return _around(x_N.mean(-1), radius, level, side, "empirical Bernstein")


def hcope(terms_N: ArrayLike, *, threshold: float | None = None, level: float = 0.95) -> Interval:
    """Lower bound mean(Y) - sqrt(2 S_Y^2 ln(2/delta) / N) - 7 c ln(2/delta) / (3 (N - 1)), Y = min(X, c).

    Covers for independent terms >= 0 without an upper bound, because truncation lowers the mean. c must not
    depend on these terms: by default the first twentieth of them (at least 2) choose c and are then
    discarded.
    Source: Thomas, Theocharous & Ghavamzadeh (2015), High-confidence off-policy evaluation, theorem 1.

    Raises UserError for a negative term.
    """
    x_N = _terms(terms_N)
    if not (x_N >= 0).all():
        raise UserError(f"The smallest term is {x_N.min():g}; HCOPE needs terms >= 0. Shift the rewards.")
    log = math.log(2 / _delta(level, "lower"))
    if threshold is None:
        first = max(2, x_N.shape[-1] // 20)
        first_M = x_N[..., :first]
        rest_N = x_N[..., first:]
        if rest_N.shape[-1] < 2:
            raise UserError(
                f"{x_N.shape[-1]} terms are too few: the first 2 choose the threshold, and the bound needs 2 "
                "more. Give at least 4, or a threshold."
            )
        n = _at_least_two(rest_N)
        # A threshold must be above 0: a term of 0 proposes 1 instead.
        candidates_M = np.where(first_M > 0, first_M, 1.0)
        predicted = [
            _truncated_bound(np.minimum(first_M[..., None, :], c[..., None]), c, n, log)
            for c in np.array_split(candidates_M, 1 + first_M.size * first // CELLS, axis=-1)
        ]
        predicted_M = np.concatenate(predicted, axis=-1)
        c = np.take_along_axis(candidates_M, predicted_M.argmax(-1)[..., None], -1)[..., 0]
    elif threshold <= 0:
        raise UserError(f"threshold is {threshold:g}, expected more than 0.")
    else:
        rest_N, c = x_N, np.full(x_N.shape[:-1], threshold)
    y_N = np.minimum(rest_N, c[..., None])
    low = _truncated_bound(y_N, c, _at_least_two(rest_N), log)
    return Interval(low, np.full_like(low, np.inf), level, "HCOPE")


def student(terms_N: ArrayLike, *, level: float = 0.95, side: str = "two") -> Interval:
    """mean +- t S / sqrt(N), t the 1 - delta quantile, N - 1 degrees, delta = (1 - level)/2 when two-sided.

    Exact for normal terms, approximate otherwise.
    """
    x_N, delta = _terms(terms_N), _delta(level, side)
    n = _at_least_two(x_N)
    radius = float(special.stdtrit(n - 1, 1 - delta)) * x_N.std(-1, ddof=1) / math.sqrt(n)
    return _around(x_N.mean(-1), radius, level, side, "Student t")


def bootstrap(
    terms_N: ArrayLike,
    log_weight_N: ArrayLike | None = None,
    *,
    level: float = 0.95,
    resamples: int = 9999,
    seed: int = 0,
) -> Interval:
    """BCa interval (Efron 1987; scipy's) of mean(x), or with log-weights of sum w x / sum w.

    Rounds are resampled with their weights, so numerator and denominator vary together: for equal rewards a
    self-normalized estimate never varies, and the interval has width 0. Terms that all equal the estimate
    give the interval [value, value]. The numbers depend on `seed` alone.

    Raises UserError if all weights of a resample are 0.
    """
    x_N = _terms(terms_N)
    _at_least_two(x_N)
    if not 0 < level < 1:
        raise UserError(f"level is {level:g}, expected between 0 and 1.")
    log_w_N = np.zeros_like(x_N) if log_weight_N is None else np.asarray(log_weight_N, dtype=np.float64)
    w_N = normalized(log_w_N)
    if w_N.shape != x_N.shape:
        raise UserError(f"The terms have shape {x_N.shape}, the weights {w_N.shape}; they must agree.")
    ends = np.empty((2, *x_N.shape[:-1]))
    for index in np.ndindex(x_N.shape[:-1]):
        ends[(slice(None), *index)] = _bca(x_N[index], w_N[index], level, resamples, seed)
    return Interval(ends[0], ends[1], level, "BCa bootstrap")


def betting(terms_N: ArrayLike, *, low: float, high: float, level: float = 0.95) -> Interval:
    """Confidence sequence by betting: means against which no bet has won 2/delta times its stake so far.

    The intervals of all prefixes cover together with probability `level`, so stopping
    at any time is valid. For a mean m the wealth prod(1 +- bet_i (x_i - m)), with bets that depend on earlier
    terms alone, is a martingale with mean 1 (Ville's inequality). For terms in the known range, independent
    or with constant conditional mean. Source: Waudby-Smith & Ramdas (2024).
    """
    x_N = (_bounded(terms_N, low, high) - low) / (high - low)
    bar = math.log(2 / _delta(level, "lower"))
    bet_N = bets(x_N, 1 - level)
    found = []
    for sign in (1.0, -1.0):
        # Wealth against m falls as m moves towards the terms: bisect for its first crossing of the bar.
        out, inside = np.zeros(x_N.shape[:-1]), np.ones(x_N.shape[:-1])
        for _ in range(BISECTIONS):
            middle = (out + inside) / 2
            mean = middle if sign > 0 else 1 - middle
            rich = log_wealth(x_N, mean, bet_N, sign).max(-1) >= bar
            out, inside = np.where(rich, middle, out), np.where(rich, inside, middle)
        found.append(out if sign > 0 else 1 - out)
    return Interval(low + (high - low) * found[0], low + (high - low) * found[1], level, "betting")


def bets(x_N: Floats, alpha: float) -> Floats:
    """Bets sqrt(2 ln(2/alpha) / (v_{i-1} i ln(i + 1))) on x in [0, 1], v a running variance."""
    count_N = np.arange(1, x_N.shape[-1] + 1)
    mean_N = (0.5 + x_N.cumsum(-1)) / (count_N + 1)
    variance_N = (0.25 + ((x_N - mean_N) ** 2).cumsum(-1)) / (count_N + 1)
    before_N = np.concatenate([np.full_like(variance_N[..., :1], 0.25), variance_N[..., :-1]], axis=-1)
    return np.asarray(np.sqrt(2 * math.log(2 / alpha) / (before_N * count_N * np.log(count_N + 1))))


def log_wealth(x_N: Floats, mean: Floats, bet_N: Floats, sign: float) -> Floats:
    """log prod_{i <= t} (1 + sign bet_i (x_i - mean)) at every t [..., N]; sign 1 bets on a larger mean."""
    room = np.asarray(mean if sign > 0 else 1 - mean)[..., None]
    with np.errstate(divide="ignore"):
        capped_N = np.minimum(bet_N, LARGEST_BET / room)
    return np.log1p(sign * capped_N * (x_N - np.asarray(mean)[..., None])).cumsum(-1)


def log_smoothing_bound(value: ArrayLike, *, lambda_: float, n: int, level: float = 0.95) -> Floats:
    """Lower bound (exp(lambda value - ln(1/delta)/n) - 1)/lambda from the log_smoothing estimate of n rounds.

    Covers for rewards >= 0 and any weights with E[w r] = V, bounded or not: prod(1 + lambda w r) has mean
    (1 + lambda V)^n (Markov's inequality). Never below 0.
    """
    if not lambda_ > 0:
        raise UserError(f"lambda_ is {lambda_:g}, expected more than 0.")
    log = math.log(1 / _delta(level, "lower"))
    value = np.asarray(value, dtype=np.float64)
    return np.asarray(np.maximum(np.expm1(lambda_ * value - log / n) / lambda_, 0.0))


def _terms(terms_N: ArrayLike) -> Floats:
    x_N = np.asarray(terms_N, dtype=np.float64)
    if x_N.ndim < 1 or x_N.shape[-1] < 1 or not np.isfinite(x_N).all():
        raise UserError(f"An interval needs finite terms [..., N]; given shape {x_N.shape}, some not finite.")
    return x_N


def _bounded(terms_N: ArrayLike, low: float, high: float) -> Floats:
    x_N = _terms(terms_N)
    if not -math.inf < low < high < math.inf:
        raise UserError(f"The range is {low:g} to {high:g}; give known finite bounds, low < high.")
    if x_N.min() < low or x_N.max() > high:
        raise UserError(
            f"Terms range from {x_N.min():g} to {x_N.max():g}, outside the stated {low:g} to {high:g}. State "
            "bounds that hold for every possible term, such as 0 to w_max r_max."
        )
    return x_N


def _at_least_two(x_N: Floats) -> int:
    if x_N.shape[-1] < 2:
        raise UserError(f"{x_N.shape[-1]} term says nothing about its spread; give at least 2.")
    return x_N.shape[-1]


def _delta(level: float, side: str) -> float:
    """The error probability of each end."""
    if not 0 < level < 1:
        raise UserError(f"level is {level:g}, expected between 0 and 1.")
    if side not in SIDES:
        raise UserError(f"side is '{side}', expected one of {', '.join(SIDES)}.")
    return (1 - level) / 2 if side == "two" else 1 - level


def _around(mean: Floats, radius: Floats | float, level: float, side: str, method: str) -> Interval:
    low = mean - radius if side != "upper" else np.full_like(mean, -np.inf)
    high = mean + radius if side != "lower" else np.full_like(mean, np.inf)
    return Interval(np.asarray(low), np.asarray(high), level, method)


def _truncated_bound(y_N: Floats, c: Floats, n: int, log: float) -> Floats:
    spread = np.sqrt(2 * y_N.var(-1, ddof=1) * log / n)
    return np.asarray(y_N.mean(-1) - spread - 7 * c * log / (3 * (n - 1)))


def _bca(x_N: Floats, w_N: Floats, level: float, resamples: int, seed: int) -> tuple[float, float]:
    value = float((w_N * x_N).sum() / w_N.sum())
    scale = float(np.abs(x_N).max())
    # BCa divides by the spread of the jackknife estimates, which would be 0.
    if float(np.abs(w_N * (x_N - value)).max()) <= 1e-12 * scale:
        return value, value

    def ratio(x: Floats, w: Floats, axis: int = -1) -> Floats:
        with np.errstate(invalid="ignore"):
            return np.asarray((w * x).sum(axis) / w.sum(axis))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)  # raised as UserError below
        found = stats.bootstrap(
            (x_N, w_N),
            ratio,
            paired=True,
            vectorized=True,
            confidence_level=level,
            n_resamples=resamples,
            method="BCa",
            batch=max(1, 2_000_000 // x_N.size),
            rng=np.random.default_rng(seed),
        )
    low, high = found.confidence_interval
    if np.isnan(low) or np.isnan(high):
        raise UserError(
            "The bootstrap is degenerate: a resample has no weight. Log more rounds that carry any."
        )
    return float(low), float(high)
