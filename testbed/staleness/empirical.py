"""Empirical ages: a measured distribution, written as ages and shares."""

import re

from testbed.errors import UserError
from testbed.staleness import schedule
from testbed.staleness.age_distribution import SLICES, AgeDistribution
from testbed.staleness.by_age import ByAge, by_distribution, check_mean

EXAMPLE = '"0:0.5 4:0.3 9:0.2"'


@schedule("empirical", source="any histogram of ages: a stack's log, or `testbed pipeline`")
def empirical(lag: int, *, distribution: str = "", slices: int = SLICES) -> ByAge:
    """P(age) as listed in distribution, "age:share age:share ..."; lag is its mean, rounded up.

    distribution: separated by spaces or commas; shares sum to 1. slices: batch parts with independent ages.
    """
    listed = parse(distribution)
    check_mean("empirical", lag, listed)
    return by_distribution("empirical", listed, slices)


def parse(text: str) -> AgeDistribution:
    """Parse "0:0.5 4:0.3 9:0.2" into a distribution; raise UserError naming the invalid part."""
    words = re.split(r"[,\s]+", str(text).strip())
    if words == [""]:
        raise UserError(
            f"schedule 'empirical' needs a distribution of ages; set staleness_args.distribution={EXAMPLE}."
        )
    shares: dict[int, float] = {}
    for word in words:
        match = re.fullmatch(r"(\d{1,9}):(\d*\.?\d+(?:[eE][-+]?\d+)?)", word)
        if match is None:
            raise UserError(f"distribution has the part {word!r}, expected age:share as in {EXAMPLE}.")
        age = int(match[1])
        if age in shares:
            raise UserError(f"distribution gives age {age} twice, expected each age once.")
        shares[age] = float(match[2])
    total = sum(shares.values())
    if abs(total - 1) > 1e-6:
        raise UserError(f"the shares of distribution sum to {total:g}, expected 1.")
    return AgeDistribution.of(sorted(shares), [shares[age] for age in sorted(shares)])
