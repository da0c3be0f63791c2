"""Uniform ages: every age in a span around the lag is equally frequent."""

import numpy as np

from testbed.errors import UserError
from testbed.staleness import schedule
from testbed.staleness.age_distribution import SLICES, AgeDistribution
from testbed.staleness.by_age import ByAge, by_distribution


@schedule(
    "uniform", source="this project: the uniform distribution between a cap on the age and its mirror image"
)
def uniform(lag: int, *, span: int = -1, slices: int = SLICES) -> ByAge:
    """P(age) = 1 / (2 span + 1) for ages from lag - span to lag + span.

    span: -1 uses lag, so ages run from 0 to 2 lag. slices: batch parts with independent ages.
    """
    width = lag if span == -1 else span
    if not 0 <= width <= lag:
        raise UserError(
            f"span {span} around lag {lag} asks for ages from {lag - width} to {lag + width}; expected a "
            f"span from 0 to {lag}, or -1 for the lag itself."
        )
    age_K = np.arange(lag - width, lag + width + 1)
    return by_distribution("uniform", AgeDistribution.of(age_K, np.ones(age_K.size)), slices)
