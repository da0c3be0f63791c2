"""Assertions about estimators, used like numpy.testing: exact with an oracle, else with declared error rates.

Every assertion has two rates. `false_alarm`: the probability that it fails although its statement is true.
`missed`: the probability that it passes although its statement is wrong by `discrepancy` or more. The number
of draws follows from both and from prior knowledge, an oracle's standard deviation or bounds on every draw
(see sample_size). A false statement raises AssertionError; a test without enough power raises UserError.

An estimator is given as `sampler(rng, n)`, which returns n independent draws, or as the draws themselves.
Seeds become numpy SeedSequences; the global generators are not used.
"""

import math

import numpy as np

from testbed.errors import UserError
from testbed.testing.draws import Draws, Seed, check_bounds, draw
from testbed.testing.e_process import EProcess, SequentialMean
from testbed.testing.normal_approximation import check_normal
from testbed.testing.sample_size import (
    FALSE_ALARM,
    MISSED,
    Spread,
    check_rates,
    fewest_covered,
    min_discrepancy,
    min_num_intervals,
    min_num_one_sided,
    min_num_samples,
)
from testbed.testing.sequential import (
    NO_BOUNDS,
    Declared,
    Intervals,
    Undecided,
    chunks,
    covers,
    differences,
    lines,
    watch,
)

Bounds = tuple[float, float]

EXACT = 1e-9
"""Relative tolerance of an assertion about numbers from an oracle."""

ZERO = 1e-12
"""Absolute tolerance if an oracle's number is 0, for which a relative one is meaningless."""


def assert_unbiased(
    actual: Draws | None,
    expected: float,
    *,
    exact: float | None = None,
    atol: float | None = None,
    discrepancy: float | None = None,
    std: float | None = None,
    bounds: Bounds | None = None,
    false_alarm: float = FALSE_ALARM,
    missed: float = MISSED,
    sequential: bool = False,
    max_samples: int | None = None,
    seed: Seed = 0,
    err_msg: str = "",
) -> None:
    """Fail if the mean of an estimator is not `expected`.

    Fails when |mean - expected| > radius(n, false_alarm / 2); a bias of `discrepancy` or more passes with
    probability at most `missed`. With `std` alone both rates assume a normal mean, and draws too skewed for
    that are refused.

    Args:
        actual: sampler(rng, n) -> [n] or draws [N]; None with `exact`.
        expected: the true value.
        exact: the estimator's expectation by enumeration; nothing is drawn, relative tolerance EXACT.
        atol: absolute tolerance beside that of `exact`; by default none, or ZERO if `expected` is 0.
        discrepancy: the smallest bias to detect.
        std: standard deviation of one draw, from an oracle.
        bounds: low and high of every draw; makes both rates guarantees.
        false_alarm: probability to fail although unbiased.
        missed: probability to pass although biased by `discrepancy`.
        sequential: test after every draw and stop early, with the same guarantees; needs bounds.
        max_samples: most draws of a sequential test, by default four times the fixed test's.
        seed: of the sampler's generator.
        err_msg: added to the message.

    Raises:
        AssertionError: biased; the message gives estimate, expected, z or e-value, n and both rates.
        UserError: too few draws for `discrepancy`; draws not finite, out of bounds, or too skewed for the
            normal distribution; a missing argument.
        Undecided: a sequential test reached max_samples.

    Example:
    >>> draw = lambda rng, n: rng.normal(size=n)
    >>> assert_unbiased(draw, 0.0, std=1.0, discrepancy=0.1)
    """
    if exact is not None:
        floor = (0.0 if expected else ZERO) if atol is None else atol
        _exactly("Biased", exact, expected, abs(exact - expected) <= EXACT * abs(expected) + floor, err_msg)
        return
    if atol is not None:
        raise UserError("`atol` is for `exact` alone: draws are judged by `discrepancy` and both rates.")
    draws = _Mean(actual, expected, discrepancy, Spread(std, bounds), (false_alarm, missed), seed)
    if sequential:
        draws.decide_sequentially("Biased", max_samples, err_msg)
        return
    mean, n = draws.fixed()
    # With a std of 0 the radius is 0, and the mean of equal draws still rounds.
    slack = 1e-12 * max(abs(mean), abs(expected))
    if not abs(mean - expected) <= draws.spread.radius(n, false_alarm / 2) + slack:
        raise AssertionError(draws.message("Biased", mean, n, false_alarm / 2, err_msg))


def assert_equivalent(
    actual: Draws | None,
    expected: float,
    *,
    margin: float,
    exact: float | None = None,
    std: float | None = None,
    bounds: Bounds | None = None,
    false_alarm: float = FALSE_ALARM,
    missed: float = MISSED,
    sequential: bool = False,
    max_samples: int | None = None,
    seed: Seed = 0,
    err_msg: str = "",
) -> None:
    """Fail unless the mean is shown to lie within `margin` of `expected`: two one-sided tests (TOST).

    Passes when |mean - expected| + radius(n, missed) < margin: a mean that is off by `margin` or more passes
    with probability at most `missed`; an exact one fails with probability at most `false_alarm`. With the
    planned number of draws it decides like `assert_unbiased`; with more, it accepts biases below the margin
    that `assert_unbiased` detects. Arguments and errors as there; `margin` is its discrepancy.
    Source: Schuirmann (1987).
    """
    if exact is not None:
        _exactly("Not equivalent", exact, expected, abs(exact - expected) < margin, err_msg)
        return
    draws = _Mean(actual, expected, margin, Spread(std, bounds), (false_alarm, missed), seed)
    if sequential:
        draws.decide_sequentially("Not equivalent", max_samples, err_msg)
        return
    mean, n = draws.fixed()
    if not abs(mean - expected) + draws.spread.radius(n, missed) < margin:
        raise AssertionError(draws.message("Not shown to be equivalent", mean, n, missed, err_msg))


def assert_variance_below(
    actual: Draws | None,
    bound: Draws,
    *,
    exact: float | None = None,
    means: tuple[float, float] | float | None = None,
    discrepancy: float | None = None,
    std: float | None = None,
    bounds: Bounds | None = None,
    false_alarm: float = FALSE_ALARM,
    missed: float = MISSED,
    sequential: bool = False,
    max_samples: int | None = None,
    seed: Seed = 0,
    err_msg: str = "",
) -> None:
    """Fail unless Var(actual) is shown to be below `bound`: a number, or another estimator's variance.

    Two estimators are paired: both samplers get a generator of the same seed (common random numbers), and D_i
    = (x_i - m_x)^2 - (y_i - m_y)^2 is averaged. Passes when mean D + radius(n, missed) < 0: a variance that
    is not lower passes with probability at most `missed`; one that is lower by `discrepancy` fails with
    probability at most `false_alarm`.

    Args:
        actual: sampler or draws of the estimator of lower variance; None with `exact`.
        bound: a variance, or sampler or draws of the other estimator; with `exact` a number.
        exact: Var(actual) by enumeration; it must not exceed `bound`, tolerance EXACT.
        means: true means of actual and of the other estimator, or one for both.
        discrepancy: the reduction of variance to detect.
        std: standard deviation of D_i, from an oracle.
        bounds: low and high of every draw of either estimator.
        false_alarm: probability to fail although lower by `discrepancy`.
        missed: probability to pass although not below.
        sequential: test after every draw and stop early, by bets on D_i; needs bounds.
        max_samples: most draws of a sequential test, by default four times the fixed test's.
        seed: of both samplers' generators.
        err_msg: added to the message.
    """
    if exact is not None:
        limit = float(np.asarray(bound))
        _exactly("Variance not below", exact, limit, exact <= limit * (1 + EXACT), err_msg)
        return
    if means is None:
        raise UserError("`means` is not given: a variance is judged about the true mean. Give it.")
    mean_x, mean_y = means if isinstance(means, tuple) else (means, means)
    compared = callable(bound) or np.ndim(bound) > 0
    other_most = _farthest(bounds, mean_y) if compared else float(np.asarray(bound))
    most_apart = _farthest(bounds, mean_x) - (0 if compared else other_most)
    spread = Spread(std, bounds and (-other_most, most_apart))
    needed = min_num_one_sided(_declared(discrepancy), spread, false_alarm, missed)
    if sequential:
        most = 4 * needed if max_samples is None else max_samples
        test = Declared(-_declared(discrepancy), 0.0, spread.bounds, (false_alarm, missed), most)
        apart = differences(actual, bound, (mean_x, mean_y), bounds, (seed, most))
        test.decide(apart, "Variance not below: difference", "of squares about the true means", err_msg)
        return
    x_N = draw(actual, needed, seed)
    check_bounds(x_N, bounds)
    square_N = (x_N - mean_x) ** 2
    if compared:
        y_N = draw(bound, needed, seed)
        check_bounds(y_N, bounds)
        other_N = (y_N - mean_y) ** 2
        if other_N.shape != square_N.shape:
            raise UserError(
                f"{square_N.size} and {other_N.size} draws cannot be paired; give as many of both."
            )
    else:
        other_N = np.asarray(bound, dtype=np.float64)
    _enough(square_N.size, needed, _declared(discrepancy))
    n, above = square_N.size, float((square_N - other_N).mean())
    check_normal(square_N - other_N, spread, false_alarm, missed)
    if not above + spread.radius(n, missed) < 0:
        raise AssertionError(
            lines(
                f"Not shown to have less variance: {square_N.mean():.6g} against {other_N.mean():.6g} about "
                f"the true means. The difference {above:.3g} must be below {-spread.radius(n, missed):.3g}.",
                f"n = {n:,} paired draws ({spread.bound}). The test passes a variance that is not lower with "
                f"probability {missed:g}, and fails one lower by {discrepancy:g} with {false_alarm:g}.",
                err_msg,
            )
        )


def assert_coverage(
    actual: Intervals | None,
    expected: float,
    *,
    level: float,
    exact: float | None = None,
    discrepancy: float = 0.05,
    false_alarm: float = FALSE_ALARM,
    missed: float = MISSED,
    sequential: bool = False,
    max_samples: int | None = None,
    seed: Seed = 0,
    err_msg: str = "",
) -> None:
    """Fail if intervals cover `expected` less often than `level`: exact binomial test.

    Fails when P(Binomial(n, level) <= covered) <= false_alarm; a coverage of level - discrepancy or less
    passes with probability at most `missed`. Both rates are guarantees for independent intervals.

    Args:
        actual: sampler(rng, n) -> (low [n], high [n]), or the two arrays; None with `exact`.
        expected: the true value.
        level: the promised coverage, e.g. 0.95.
        exact: the coverage by enumeration; it must reach `level`, tolerance EXACT.
        discrepancy: the smallest lack of coverage to detect.
        false_alarm: probability to fail although coverage reaches `level`.
        missed: probability to pass although coverage is too low by `discrepancy`.
        sequential: test after every interval and stop early, by bets on whether it covers.
        max_samples: most intervals of a sequential test, by default four times the fixed test's.
        seed: of the sampler's generator.
        err_msg: added to the message.
    """
    if exact is not None:
        _exactly("Coverage too low", exact, level, exact >= level - EXACT, err_msg)
        return
    needed = min_num_intervals(level, discrepancy, false_alarm=false_alarm, missed=missed)
    if actual is None:
        raise UserError("`actual` is None; give intervals or a sampler, or the coverage as `exact`.")
    if sequential:
        most = 4 * needed if max_samples is None else max_samples
        test = Declared(level, level - discrepancy, (0.0, 1.0), (false_alarm, missed), most)
        held = chunks(covers(actual, expected), seed, most)
        test.decide(held, "Coverage too low:", f"intervals that hold {expected:g}", err_msg)
        return
    held_N = draw(covers(actual, expected), needed, seed)
    n, covered = held_N.size, int(held_N.sum())
    _enough(n, needed, discrepancy)
    if covered < (fewest := fewest_covered(n, level, false_alarm)):
        raise AssertionError(
            lines(
                f"Coverage too low: {covered:,} of {n:,} intervals ({covered / n:.4f}) hold {expected:g}; "
                f"level {level:g} needs {fewest:,}.",
                f"Binomial test; false alarm {false_alarm:g}, a coverage of {level - discrepancy:g} or less "
                f"is missed with chance {missed:g} at most.",
                err_msg,
            )
        )


class _Mean:
    """Draws of one estimator, their expected mean, and the declared knowledge about them."""

    def __init__(
        self,
        actual: Draws | None,
        expected: float,
        discrepancy: float | None,
        spread: Spread,
        rates: tuple[float, float],
        seed: Seed,
    ) -> None:
        check_rates(*rates)
        self.actual, self.expected, self.spread, self.seed = actual, expected, spread, seed
        self.discrepancy, self.rates = _declared(discrepancy), rates
        self.needed = min_num_samples(
            self.discrepancy, std=spread.std, bounds=spread.bounds, false_alarm=rates[0], missed=rates[1]
        )

    def fixed(self) -> tuple[float, int]:
        """Return mean and number of draws; raise UserError if they are too few."""
        x_N = draw(self.actual, self.needed, self.seed)
        _enough(x_N.size, self.needed, self.discrepancy)
        check_bounds(x_N, self.spread.bounds)
        check_normal(x_N, self.spread, self.rates[0] / 2, self.rates[1])
        return float(x_N.mean()), x_N.size

    def decide_sequentially(self, word: str, max_samples: int | None, err_msg: str) -> None:
        """Draw until the bets decide; raise AssertionError if they decide "biased"."""
        bounds = self.spread.bounds
        if bounds is None:
            raise UserError(NO_BOUNDS)
        test = SequentialMean(self.expected, self.discrepancy, bounds, *self.rates)
        most = 4 * self.needed if max_samples is None else max_samples
        draws, aim = chunks(self.actual, self.seed, most), f"expected {self.expected:.6g}"
        mean, e_value = watch(test, draws, aim, self.rates[0], most=most, discrepancy=self.discrepancy)
        if test.verdict == "biased":
            first = f"{word}: mean {mean:.6g}, expected {self.expected:.6g}; {e_value}."
            raise AssertionError(lines(first, self._declaration(test.n, "betting e-process"), err_msg))

    def message(self, word: str, mean: float, n: int, rate: float, err_msg: str) -> str:
        """Return the message of a fixed test."""
        apart, radius = mean - self.expected, self.spread.radius(n, rate)
        first = f"{word}: mean {mean:.6g}, expected {self.expected:.6g}, apart by {apart:.3g}"
        if word == "Biased":
            first += f", more than {radius:.3g}"
        else:
            first += f" give or take {radius:.3g}, margin {self.discrepancy:.3g}"
        if self.spread.std:
            error = self.spread.std / math.sqrt(n)
            first += f" (z = {apart / error:.2f}, critical {radius / error:.2f}, standard error {error:.3g})"
        return lines(f"{first}.", self._declaration(n, self.spread.bound), err_msg)

    def _declaration(self, n: int, bound: str) -> str:
        false_alarm, missed = self.rates
        return (
            f"n = {n:,} ({bound}); false alarm {false_alarm:g}, a bias of {self.discrepancy:g} or more is "
            f"missed with chance {missed:g} at most."
        )


def _declared(discrepancy: float | None) -> float:
    if discrepancy is None:
        raise UserError(
            "`discrepancy` is not declared; without it every estimator passes. Give the smallest."
        )
    return discrepancy


def _enough(n: int, needed: int, discrepancy: float) -> None:
    if n < needed:
        raise UserError(
            f"{n:,} draws cannot tell a discrepancy of {discrepancy:g} at these rates; give {needed:,} or "
            "declare more (testbed.testing.assertions.min_discrepancy says how much)."
        )


def _exactly(word: str, exact: float, expected: float, holds: bool, err_msg: str) -> None:
    if not holds:
        first = f"{word}: exactly {exact:.12g}, expected {expected:.12g}, apart by {exact - expected:.3g}."
        raise AssertionError(lines(first, err_msg))


def _farthest(bounds: Bounds | None, mean: float) -> float:
    return math.inf if bounds is None else max(bounds[1] - mean, mean - bounds[0]) ** 2


__all__ = [
    "EProcess", "Undecided", "assert_coverage", "assert_equivalent", "assert_unbiased",
    "assert_variance_below", "min_discrepancy", "min_num_intervals", "min_num_samples",
]  # fmt: skip
