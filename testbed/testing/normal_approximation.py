"""Check that draws are close enough to normal for a test of their mean to keep its error rates."""

import math

from scipy import special

from envs.arrays import Floats
from testbed.errors import UserError
from testbed.testing.sample_size import Spread

FACTOR = 2.0
"""Factor by which a tail probability may differ from the normal one."""

NOISE = 6.0
"""Standard errors, of normal draws, subtracted from a sample's skewness and kurtosis."""


def num_samples_for_normal(skewness: float, excess_kurtosis: float, rate: float) -> int:
    """Return the fewest draws at which tails of probability `rate` are within FACTOR of the normal ones.

    To first order P(Z_n > z) / P(Z > z) = exp(skewness z^3 / (6 sqrt n) + excess_kurtosis z^4 / (24 n)), with
    z the normal quantile of `rate`: the first terms of Cramér's series (Cramér 1938; Petrov 1975, chapter
    VIII), each bounded by log FACTOR. It is an approximation, and needs finite moments.
    """
    z, most = -float(special.ndtri(rate)), math.log(FACTOR)
    by_skewness = (abs(skewness) * z**3 / (6 * most)) ** 2
    return math.ceil(max(1.0, by_skewness, max(excess_kurtosis, 0.0) * z**4 / (24 * most)))


def check_normal(x_N: Floats, spread: Spread, false_alarm: float, missed: float) -> None:
    """Raise UserError if the rates assume normality and the draws are too skewed for it at their n.

    Skewness and kurtosis are the sample's, in units of the declared deviation. A mean that is far off because
    of one large draw has skewness of order sqrt(n), so it is refused and not a false alarm.
    """
    if spread.bounds is not None or not spread.std:
        return
    n, away_N = x_N.size, (x_N - x_N.mean()) / spread.std
    skewness = float((away_N**3).mean())
    kurtosis = float((away_N**4).mean()) - 3.0
    surely = max(abs(skewness) - NOISE * math.sqrt(6 / n), 0.0)
    needed = num_samples_for_normal(surely, kurtosis - NOISE * math.sqrt(24 / n), min(false_alarm, missed))
    if n < needed:
        enough = spread.radius(needed, false_alarm) + spread.radius(needed, missed)
        raise UserError(
            f"{n:,} draws with skewness {skewness:.3g} and excess kurtosis {kurtosis:.3g} do not have the "
            f"rates of the normal distribution, on which `std` alone relies: that takes {needed:,}. "
            "Give `bounds` of every draw (Hoeffding; with `std` Bernstein), which hold for any distribution, "
            f"or declare a discrepancy of {enough:.2g}, for which as many are drawn."
        )
