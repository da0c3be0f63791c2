"""Periodic: one generation serves N updates."""

import numpy as np

from testbed.errors import UserError
from testbed.staleness import schedule
from testbed.staleness.age_distribution import AgeDistribution
from testbed.staleness.by_age import ByAge, check_mean


@schedule(
    "periodic",
    source="Noukhovitch et al. (2025), Asynchronous RLHF, arXiv:2410.18252; ReMix, arXiv:2507.06892",
)
def periodic(lag: int, *, period: int = 0, ahead: int = 0) -> ByAge:
    """age = ahead N + step mod N: N batches are generated at once and used one after another.

    period: N; 0 uses N = 2 lag + 1, with mean age ahead N + (N - 1) / 2 = lag at ahead 0. ahead: periods by
    which generation is early; with 1 the next N batches are generated while these N are trained on.

    A sample's draws depend on its step and sequence alone, so generating N batches at the start of a period
    equals generating them one by one with the weights of that start.
    """
    if min(lag, period, ahead) < 0:
        raise UserError(f"lag is {lag}, period {period}, ahead {ahead}; expected each at least 0.")
    length = period or max((2 * lag + 1) // (2 * ahead + 1), 1)
    distribution = AgeDistribution.of(ahead * length + np.arange(length), np.ones(length))
    check_mean("periodic", lag, distribution)
    return ByAge(
        lambda _, step: np.array([ahead * length + step % length]),
        depth=distribution.longest + 1,
        shortest=distribution.shortest,
        mean=distribution.mean,
        distribution=distribution,
    )
