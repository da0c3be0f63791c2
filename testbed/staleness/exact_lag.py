"""Exact lag k: every sample comes from the weights of exactly k optimizer steps ago."""

import numpy as np

from testbed.errors import UserError
from testbed.staleness import schedule
from testbed.staleness.age_distribution import AgeDistribution
from testbed.staleness.by_age import ByAge, by_distribution


@schedule("exact", source="no stack fixes the lag: their caps leave the age below the cap to chance")
def exact(lag: int) -> ByAge:
    """age = lag for every sample from step `lag` on; earlier steps use the starting weights."""
    if lag < 0:
        raise UserError(f"lag {lag} is negative; weights of the future cannot generate data.")
    return by_distribution("exact", AgeDistribution.of(np.array([lag]), [1.0]))
