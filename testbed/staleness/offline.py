"""Fully offline: all data come from the weights at the start."""

import math

import numpy as np

from testbed.errors import UserError
from testbed.staleness import schedule
from testbed.staleness.by_age import ByAge


@schedule("offline", source="Yao et al. (2025), arXiv:2509.24203, the fully offline setting")
def offline(lag: int) -> ByAge:
    """age = step: every sample comes from the starting weights, so ages grow without end.

    Such ages have no mean, so lag has to stay 0.
    """
    if lag:
        raise UserError(f"lag is {lag}, but offline data age with every step, without a mean; set lag=0.")
    return ByAge(lambda _, step: np.array([step]), depth=1, first=True, shortest=math.inf)
