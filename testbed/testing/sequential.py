"""Feed draws to a sequential test until it decides, or no draws are left."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from envs.arrays import Floats
from testbed.errors import UserError
from testbed.testing.draws import Draws, Seed, Stream, check_bounds, draw
from testbed.testing.e_process import SequentialSide

Pair = tuple[ArrayLike, ArrayLike]
Intervals = Callable[[np.random.Generator, int], Pair] | Pair

NO_BOUNDS = "A sequential test needs `bounds`: bets on unbounded draws can lose everything."


class Undecided(UserError):
    """A sequential test ended without a verdict: too few draws for its discrepancy."""


class Test(Protocol):
    """The interface of SequentialMean and SequentialSide of testbed.testing.e_process."""

    verdict: str | None
    n: int
    log_e_value: float

    def add(self, x_N: Floats) -> None: ...


def chunks(actual: Draws | None, seed: Seed, most: int) -> Iterable[Floats]:
    """Return draws of a sampler in growing chunks, `most` in total, or the first `most` of the given ones."""
    return Stream(actual, seed, most) if callable(actual) else [draw(actual, most, seed)[:most]]


def watch(
    test: Test, draws: Iterable[Floats], aim: str, rate: float, *, most: int, discrepancy: float
) -> tuple[float, str]:
    """Return the mean of the inspected draws, and the e-value with its critical value 1/rate.

    `aim` names the mean's comparison in messages. Raises Undecided if draws end first.
    """
    total = 0.0
    for chunk_N in draws:
        before = test.n
        test.add(chunk_N)
        total += float(chunk_N[: test.n - before].sum())
        if test.verdict is not None:
            break
    mean = total / max(test.n, 1)
    e_value = f"e-value {math.exp(min(test.log_e_value, 700)):.3g}, critical {1 / rate:.3g}"
    if test.verdict is None:
        raise Undecided(
            f"Undecided after {test.n:,} draws: mean {mean:.6g}, {aim}; {e_value}."
            f" Raise max_samples (now {most:,}) or declare more than {discrepancy:g}."
        )
    return mean, e_value


class Declared:
    """A one-sided sequential assertion: the mean of a draw is `good`, or else `bad`, with both rates.

    bounds: of every draw. rates: (false_alarm, missed). most: draws before it gives up. Raises UserError
    without bounds, or if one of the two means is impossible.
    """

    def __init__(
        self,
        good: float,
        bad: float,
        bounds: tuple[float, float] | None,
        rates: tuple[float, float],
        most: int,
    ) -> None:
        if bounds is None:
            raise UserError(NO_BOUNDS)
        self.good, self.bad, self.rates, self.most = good, bad, rates, most
        self._test = SequentialSide(good, bad, bounds, *rates)

    def decide(self, draws: Iterable[Floats], word: str, what: str, err_msg: str) -> None:
        """Return once the mean is shown to be better than `bad`; else raise AssertionError or Undecided."""
        test, (false_alarm, missed) = self._test, self.rates
        aim = f"{what}; good {self.good:g}, bad {self.bad:g}"
        apart = abs(self.good - self.bad)
        mean, e_value = watch(test, draws, aim, false_alarm, most=self.most, discrepancy=apart)
        if test.verdict == "bad":
            declared = (
                f"n = {test.n:,} (betting e-process); {self.good:g} or better fails with chance "
                f"{false_alarm:g}, {self.bad:g} or worse passes with chance {missed:g} at most."
            )
            raise AssertionError(lines(f"{word} mean {mean:.6g}, {aim}; {e_value}.", declared, err_msg))


def differences(
    actual: Draws | None,
    bound: Draws,
    means: tuple[float, float],
    bounds: tuple[float, float] | None,
    source: tuple[Seed, int],
) -> Iterator[Floats]:
    """Yield chunks of (x - m_x)^2 minus (y - m_y)^2 or the number `bound`; source: (seed, most draws).

    Both samplers get a generator of the same seed. Raises UserError for draws that cannot be paired.
    """
    mean_x, mean_y = means
    if not callable(bound) and np.ndim(bound) == 0:
        for x_N in chunks(actual, *source):
            check_bounds(x_N, bounds)
            yield (x_N - mean_x) ** 2 - float(np.asarray(bound))
        return
    for x_N, y_N in zip(chunks(actual, *source), chunks(bound, *source), strict=False):
        if x_N.shape != y_N.shape:
            raise UserError(
                f"{x_N.size} and {y_N.size} draws cannot be paired; give two samplers, or as many of both."
            )
        check_bounds(x_N, bounds)
        check_bounds(y_N, bounds)
        yield (x_N - mean_x) ** 2 - (y_N - mean_y) ** 2


def covers(actual: Intervals | None, expected: float) -> Draws:
    """Return 1 for an interval that contains `expected`, else 0: as a sampler, or [N]."""
    if actual is None:
        raise UserError("`actual` is None; give intervals or a sampler, or the coverage as `exact`.")
    if callable(actual):
        sampler = actual
        return lambda rng, n: _held(sampler(rng, n), expected)
    return _held(actual, expected)


def _held(pair: Pair, expected: float) -> Floats:
    low_N, high_N = (np.asarray(each, dtype=np.float64) for each in pair)
    if low_N.shape != high_N.shape or low_N.ndim != 1 or not (low_N <= high_N).all():
        raise UserError(f"low {low_N.shape} and high {high_N.shape}: expected [N] both, low <= high, no NaN.")
    return ((low_N <= expected) & (expected <= high_N)).astype(np.float64)


def lines(*parts: str) -> str:
    """Join the nonempty parts, one per line."""
    return "\n".join(part for part in parts if part)
