"""Tail indices of a weight's distribution: Pareto-k with a typed outcome, Hill, moment, Pickands. No torch.

Valid for independent weights with a continuous distribution. With few distinct weights a tail index only
describes ties: `pareto_k` then returns Flat or TooFew, never a number. A single number k of largest weights
is arbitrary: trust an index only where it hardly moves with k.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from envs.arrays import Floats
from testbed.errors import UserError, unknown

NEEDED = 5
"""Distinct weights above the cutoff that a fit needs."""

FLAT_BELOW = 1e-6
"""Logarithms that differ by less than this count as equal: log-probabilities are rounded by that much."""


@dataclass(frozen=True)
class Flat:
    """The largest weights are equal up to rounding, as on-policy: there is no tail. tail: their number."""

    n: int
    tail: int


@dataclass(frozen=True)
class TooFew:
    """Fewer than `needed` distinct weights lie above the cutoff; `distinct` do."""

    n: int
    tail: int
    distinct: int
    needed: int = NEEDED


@dataclass(frozen=True)
class Estimated:
    """A generalized Pareto distribution was fitted to the weights above the cutoff.

    tail: number of weights above the cutoff, ties with it excluded. k: the shape, with the weak prior; k < 0
    for a bounded distribution, k >= 1/2: infinite variance, k >= 1: no mean. log_scale, log_cutoff: of w, in
    logs. threshold: min(1 - 1/log10 n, 0.7), above which an estimate from n weights is unreliable. required:
    samples needed for this k, inf for k >= 1.
    """

    n: int
    tail: int
    k: float
    log_scale: float
    log_cutoff: float
    threshold: float
    required: float

    @property
    def reliable(self) -> bool:
        """True if k is at most the threshold."""
        return self.k <= self.threshold


ParetoK = Flat | TooFew | Estimated


def tail_length(n: int) -> int:
    """min(n/5, 3 sqrt(n)), rounded up: Pareto-k's number of tail weights (Vehtari et al. 2024)."""
    return math.ceil(min(n / 5, 3 * math.sqrt(n)))


def pareto_k(log_w_N: ArrayLike, tail: int | None = None) -> ParetoK:
    """Estimate the Pareto tail index k of one vector of weights.

    Scale-invariant. The fit is the posterior mean of Zhang & Stephens (2009) on the exceedances over the
    (tail + 1)-th largest weight, shrunk by (m k + 5) / (m + 10) with m weights strictly above it; Vehtari,
    Simpson, Gelman, Yao & Gabry (2024), arXiv:1507.02646. Weights within FLAT_BELOW of the cutoff are not
    above it; weights that close to each other count once in the check for enough distinct weights.

    Args:
        log_w_N: log-weights [N]; -inf is a weight of 0.
        tail: number of largest weights in the fit; `tail_length(N)` by default.

    Returns:
        Estimated(k, …), Flat if the largest weights are equal, or TooFew; never an infinite k.

    Raises UserError for NaN, +inf, another shape, or a tail that is not within 1 … N - 1.
    """
    log_w_N = _checked(log_w_N)
    n = log_w_N.size
    tail = tail_length(n) if tail is None else tail
    if tail != int(tail):
        raise UserError(f"tail is {tail}, expected a number of weights.")
    # The cutoff takes one weight, so NEEDED weights in all can never leave NEEDED above it.
    if n <= NEEDED:
        return Flat(n, n) if np.ptp(log_w_N) < FLAT_BELOW else TooFew(n, n, _distinct(np.sort(log_w_N)))
    if not 1 <= tail < n:
        raise UserError(f"tail is {tail}, expected 1 to {n - 1} for {n} weights.")
    largest = np.sort(log_w_N)[-tail - 1 :]
    cutoff, above = float(largest[0]), largest[1:]
    # With few distinct weights there are ties at the cutoff, and sums of logarithms differ by rounding.
    above = above[above > cutoff + FLAT_BELOW]
    if above.size == 0:
        return Flat(n, tail)
    top = float(above[-1])
    exceedance = np.exp(above - top) - math.exp(cutoff - top)
    fitted = exceedance > 1e-300  # relative to the largest: 1/x would overflow for less
    distinct = _distinct(above[fitted])
    if distinct < NEEDED:
        return TooFew(n, tail, distinct)
    k, scale = _fit(exceedance[fitted])
    tail = above.size
    k = (tail * k + 5) / (tail + 10)
    # At most 10^300: just below k = 1 the power of ten would overflow.
    return Estimated(
        n=n, tail=tail, k=k, log_scale=math.log(scale) + top, log_cutoff=cutoff,
        threshold=min(1 - 1 / math.log10(n), 0.7),
        required=math.inf if k >= 1 else 10 ** min(1 / (1 - max(0.0, k)), 300.0),
    )  # fmt: skip


def _distinct(ascending_M: Floats) -> int:
    """Count values that differ by FLAT_BELOW or more from the one before; -inf equals -inf."""
    with np.errstate(invalid="ignore"):
        return 1 + int((np.diff(ascending_M) >= FLAT_BELOW).sum())


def _fit(x_M: Floats) -> tuple[float, float]:
    """Return shape and scale of a generalized Pareto fit to an ascending sample: Zhang & Stephens (2009).

    The profile likelihood over b = -shape/scale is averaged on their grid under their data-driven prior.
    """
    size = x_M.size
    points = 30 + int(math.sqrt(size))
    quartile = x_M[int(size / 4 + 0.5) - 1]
    j_K = np.arange(1, points + 1)
    b_K = 1 / x_M[-1] + (1 - np.sqrt(points / (j_K - 0.5))) / (3 * quartile)
    k_K = np.log1p(-b_K[:, None] * x_M).mean(-1)
    log_likelihood_K = size * (np.log(-b_K / k_K) - k_K - 1)
    weight_K = np.exp(log_likelihood_K - log_likelihood_K.max())
    b = float(weight_K @ b_K / weight_K.sum())
    k = float(np.log1p(-b * x_M).mean())
    return k, -k / b


def smooth(log_w_N: ArrayLike, tail: int | None = None) -> tuple[Floats, ParetoK]:
    """Return log-weights with a tail replaced by quantiles of the fit, and the outcome of the fit.

    The tail is the fitted part, the weights strictly above the cutoff. Quantiles at (j - 1/2)/tail, never
    above the largest raw weight, in the order of the raw weights; not normalized. Flat and TooFew leave the
    weights unchanged. Source: as `pareto_k`.
    """
    log_w_N = _checked(log_w_N)
    found = pareto_k(log_w_N, tail)
    if not isinstance(found, Estimated):
        return log_w_N.copy(), found
    order = np.argsort(log_w_N, kind="stable")[-found.tail :]
    level = (np.arange(1, found.tail + 1) - 0.5) / found.tail
    log_quantile = found.log_scale + _log_stretch(-np.log1p(-level), found.k)
    smoothed = log_w_N.copy()
    smoothed[order] = np.minimum(np.logaddexp(found.log_cutoff, log_quantile), log_w_N.max())
    return smoothed, found


def _log_stretch(x_M: Floats, k: float) -> Floats:
    """Return log((e^{kx} - 1) / k), the unit quantile at level 1 - e^{-x}; log x at k = 0."""
    if k == 0:
        return np.log(x_M)
    far = k * x_M > 30  # here 1 is below the last digit, and e^{kx} may overflow
    near = np.log(np.expm1(np.where(far, 1.0, k * x_M)) / np.where(far, 1.0, k))
    return np.where(far, k * x_M - math.log(abs(k)), near)


def hill(log_w_N: ArrayLike, k: int) -> float:
    """Mean of log w_(1..k) - log w_(k+1), largest first: Hill (1975); standard error index/sqrt(k).

    Only for an index > 0: it is also positive for light and bounded tails. A shift of w changes it.
    """
    top = _top(log_w_N, k, k + 1)
    return float(np.mean(top[:k] - top[k]))


def moment(log_w_N: ArrayLike, k: int) -> float:
    """M1 + 1 - 1/(2 (1 - M1^2/M2)), M_j = mean (log w_(i) - log w_(k+1))^j; NaN on a tail of ties.

    For an index of any sign. Source: Dekkers, Einmahl & de Haan (1989).
    """
    top = _top(log_w_N, k, k + 1)
    excess = top[:k] - top[k]
    first, second = float(excess.mean()), float((excess**2).mean())
    # One exceedance, or equal ones, have M1^2 = M2 up to rounding and determine no index.
    if second <= 0 or 1 - first**2 / second < 1e-12:
        return math.nan
    return first + 1 - 0.5 / (1 - first**2 / second)


def tail_metrics(log_w_N: ArrayLike, level: str) -> dict[str, float]:
    """Return Pareto-k, its threshold, Hill and moment (of the same tail) under the names of metric_names.

    A flat tail, or one with too few distinct weights, returns none of the four keys.

    Args:
        log_w_N: log-weights [N].
        level: token, prefix or sequence: the level of the ratios.
    """
    found = pareto_k(log_w_N)
    if level not in ("token", "prefix", "sequence"):
        raise unknown("level", level, ("token", "prefix", "sequence"))
    if not isinstance(found, Estimated):
        return {}
    # Both indices divide by the (k+1)-th weight, which must not be 0.
    k = min(found.tail, int(np.isfinite(_checked(log_w_N)).sum()) - 1)
    values = {"pareto_k": found.k, "pareto_k_threshold": found.threshold}
    values |= {"tail_hill": hill(log_w_N, k), "tail_moment": moment(log_w_N, k)}
    return {f"rollout_corr/{name}_{level}": value for name, value in values.items()}


def _checked(log_w_N: ArrayLike) -> Floats:
    if hasattr(log_w_N, "detach"):  # a tensor, perhaps with a gradient or in bfloat16, which numpy refuses
        log_w_N = log_w_N.detach().double().cpu()
    log_w_N = np.asarray(log_w_N, dtype=np.float64)
    if log_w_N.ndim != 1 or log_w_N.size == 0:
        raise UserError(f"log_w_N has shape {log_w_N.shape}, expected [N] with N >= 1: one batch at a time.")
    if not (log_w_N < np.inf).all():
        raise UserError("log_w_N holds NaN or +inf; their tail index is undefined. Mask these weights.")
    if log_w_N.max() == -np.inf:
        raise UserError("All weights are 0: no sample lies where pi has mass. Give other samples.")
    return log_w_N


def _top(log_w_N: ArrayLike, k: int, needed: int) -> Floats:
    """Return the `needed` largest log-weights, largest first; raise UserError if there are fewer."""
    log_w_N = _checked(log_w_N)
    if k < 1 or needed > log_w_N.size:
        raise UserError(
            f"k is {k} for {log_w_N.size} weights; expected k >= 1 and at least {needed} weights."
        )
    top = np.sort(log_w_N)[::-1][:needed]
    if top[-1] == -np.inf:
        raise UserError(f"Fewer than {needed} weights are positive; take a smaller k than {k}.")
    return top
