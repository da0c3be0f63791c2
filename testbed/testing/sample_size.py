"""Plan sample sizes for declared error rates from a known standard deviation, never from the data.

Prior knowledge of one draw determines the bound:

- `std` alone: the normal distribution of the mean; the rates follow the central limit theorem and are not
guarantees.
- `bounds` alone: Hoeffding's inequality; guaranteed for every distribution within the bounds.
- both: Bernstein's inequality; guaranteed for every distribution within the bounds with at most this
deviation.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from scipy import special

from testbed.errors import UserError

FALSE_ALARM = 1e-6
"""Default probability that a true assertion fails: one false alarm in 14 years at 200 tests a day."""

MISSED = 1e-2
"""Default probability that an assertion passes although it is wrong by the declared discrepancy."""

MOST = 2**40


@dataclass(frozen=True)
class Spread:
    """Spread of one draw: its standard deviation, its bounds, or both.

    Raises UserError if neither is given, std is negative or not finite, or the bounds are not low < high.
    """

    std: float | None = None
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.std is None and self.bounds is None:
            raise UserError(
                "Neither `std` nor `bounds` is given. Give the standard deviation of one draw from an oracle "
                "(that of the sample is too small exactly when the heavy draws are missing), or bounds."
            )
        if self.std is not None and not (math.isfinite(self.std) and self.std >= 0):
            raise UserError(f"std is {self.std:g}, expected a finite number >= 0.")
        if self.bounds is not None and not -math.inf < self.bounds[0] < self.bounds[1] < math.inf:
            raise UserError(f"bounds are {self.bounds}, expected finite low < high.")

    def radius(self, n: int, rate: float) -> float:
        """Return t with P(mean of n - its expectation >= t) <= rate; see the module for conditions."""
        if self.bounds is None:
            return -float(special.ndtri(rate)) * (self.std or 0.0) / math.sqrt(n)
        width, log_rate = self.bounds[1] - self.bounds[0], -math.log(rate)
        hoeffding = width * math.sqrt(log_rate / (2 * n))
        if self.std is None:
            return hoeffding
        return min(hoeffding, self.std * math.sqrt(2 * log_rate / n) + width * log_rate / (3 * n))

    @property
    def bound(self) -> str:
        """Name of the bound in use."""
        if self.bounds is None:
            return "normal approximation"
        return "Hoeffding" if self.std is None else "Bernstein"


def min_num_samples(
    discrepancy: float,
    *,
    std: float | None = None,
    bounds: tuple[float, float] | None = None,
    false_alarm: float = FALSE_ALARM,
    missed: float = MISSED,
) -> int:
    """Return the fewest draws n with radius(n, false_alarm/2) + radius(n, missed) <= discrepancy.

    With `std` alone n = ((z_{1-false_alarm/2} + z_{1-missed}) std / discrepancy)^2. It serves both
    `assert_unbiased` and `assert_equivalent`. Raises UserError for a discrepancy that is not positive.
    """
    spread = Spread(std, bounds)
    check_rates(false_alarm, missed)
    return _fewest(lambda n: spread.radius(n, false_alarm / 2) + spread.radius(n, missed), discrepancy)


def min_discrepancy(
    n: int,
    *,
    std: float | None = None,
    bounds: tuple[float, float] | None = None,
    false_alarm: float = FALSE_ALARM,
    missed: float = MISSED,
) -> float:
    """Return radius(n, false_alarm/2) + radius(n, missed): the smallest bias that n draws detect."""
    spread = Spread(std, bounds)
    check_rates(false_alarm, missed)
    if n < 1:
        raise UserError(f"n is {n}, expected the number of draws, 1 or more.")
    return spread.radius(n, false_alarm / 2) + spread.radius(n, missed)


def min_num_one_sided(discrepancy: float, spread: Spread, false_alarm: float, missed: float) -> int:
    """Return the fewest draws n with radius(n, false_alarm) + radius(n, missed) <= discrepancy."""
    check_rates(false_alarm, missed)
    return _fewest(lambda n: spread.radius(n, false_alarm) + spread.radius(n, missed), discrepancy)


def min_num_intervals(
    level: float, discrepancy: float, *, false_alarm: float = FALSE_ALARM, missed: float = MISSED
) -> int:
    """Return the number of intervals that separates coverage `level` from `level - discrepancy`.

    By exact binomial sums: with n intervals the assertion fails if `fewest_covered(n, …) - 1` or fewer cover.
    The returned n is within a percent of the smallest.
    """
    check_rates(false_alarm, missed)
    if not 0 < discrepancy < level < 1:
        raise UserError(
            f"level is {level:g}, discrepancy {discrepancy:g}; expected 0 < discrepancy < level < 1."
        )
    n = 8
    while n < MOST:
        fewest = fewest_covered(n, level, false_alarm)
        if fewest > 0 and special.bdtrc(fewest - 1, n, level - discrepancy) <= missed:
            return n
        n = max(n + 1, n * 101 // 100)
    raise UserError(f"No number of intervals below {MOST} tells {level:g} from {level - discrepancy:g}.")


def fewest_covered(n: int, level: float, false_alarm: float) -> int:
    """Return the smallest k with P(Binomial(n, level) <= k) > false_alarm."""
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if special.bdtr(middle, n, level) > false_alarm else (middle + 1, high)
    return low


def check_rates(false_alarm: float, missed: float) -> None:
    """Raise UserError unless both rates lie strictly between 0 and 1/2."""
    for name, rate in (("false_alarm", false_alarm), ("missed", missed)):
        if not 0 < rate < 0.5:
            raise UserError(f"{name} is {rate:g}, expected a probability between 0 and 1/2.")


def _fewest(needed: Callable[[int], float], discrepancy: float) -> int:
    """Return the smallest n >= 1 at which a falling function is at most `discrepancy`."""
    if not 0 < discrepancy < math.inf:
        raise UserError(
            f"discrepancy is {discrepancy:g}, expected a positive number: what must not be missed."
        )
    high = 1
    while needed(high) > discrepancy:
        high *= 2
        if high > MOST:
            raise UserError(
                f"discrepancy {discrepancy:g} needs more than {MOST} draws; declare a larger one."
            )
    low = high // 2  # fails, or is 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if needed(middle) <= discrepancy else (middle, high)
    return high
