"""Two ages: most samples fresh and the rest old, at a given mean."""

import numpy as np

from testbed.errors import UserError
from testbed.staleness import schedule
from testbed.staleness.age_distribution import SLICES, AgeDistribution
from testbed.staleness.by_age import ByAge, by_distribution


@schedule(
    "two-point",
    source="this project: of all distributions with this mean and range, the one of largest variance",
)
def two_point(lag: int, *, low: int = 0, high: int = -1, slices: int = SLICES) -> ByAge:
    """P(high) = (lag - low) / (high - low), P(low) = 1 - P(high), so the mean age is lag.

    high: -1 uses 2 lag - low, symmetric to low. slices: batch parts with independent ages.
    """
    upper = 2 * lag - low if high == -1 else high
    if not 0 <= low <= lag <= upper:
        raise UserError(
            f"ages {low} and {upper} cannot have the mean {lag}; expected 0 <= low <= lag <= high."
        )
    if low == upper:
        return by_distribution("two-point", AgeDistribution.of([lag], [1.0]), slices)
    ages = AgeDistribution.of(np.array([low, upper]), [upper - lag, lag - low])
    return by_distribution("two-point", ages, slices)
