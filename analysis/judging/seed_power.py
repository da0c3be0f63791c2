"""How many seeds bets need that may be looked at after every block, and that must come out twice."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import logsumexp

from analysis.experiment import Stop
from envs.arrays import Floats
from testbed.testing.e_process import SHARES

CAP = 512
"""Most seeds that a run of bets is given."""


def agreeing(gap: float, spread: float) -> float:
    """Return the chance that one normal difference has the sign of the gap."""
    return float(stats.norm.cdf(abs(gap) / spread))


def decided(chance: float, stop: Stop) -> Floats:
    """Return the chance that a run is decided at or before each of its looks, for the right side.

    chance: that a seed agrees. Exact: the wealth after n seeds depends on how many of them agreed, so that
    (seeds that agreed, was the wealth ever enough) is a chain; a look wants a median on the same side too.
    """
    agreed_K = np.arange(stop.cap + 1)
    poor_K, rich_K = (np.zeros(stop.cap + 1) for _ in range(2))
    poor_K[0], total, at_look = 1.0, 0.0, []
    for n in range(1, stop.cap + 1):
        poor_K, rich_K = _one_more(poor_K, chance), _one_more(rich_K, chance)
        enough_K = _enough(n, agreed_K, stop.level)
        rich_K, poor_K = rich_K + poor_K * enough_K, poor_K * ~enough_K
        if n % stop.block == 0:
            ends_K = rich_K * (agreed_K > n / 2)
            total += ends_K.sum()
            rich_K = rich_K - ends_K
            at_look.append(total)
    return np.array(at_look)


def _one_more(law_K: Floats, chance: float) -> Floats:
    """Return the law of the seeds that agreed after one seed more."""
    return (1 - chance) * law_K + chance * np.concatenate(([0.0], law_K[:-1]))


def _enough(n: int, agreed_K: NDArray[np.int64], level: float) -> NDArray[np.bool_]:
    """Return whether n seeds of which so many agreed have a wealth of 2 / level, see `sequential`."""
    path_KS = np.multiply.outer(agreed_K, np.log1p(SHARES)) + np.multiply.outer(
        n - agreed_K, np.log1p(-SHARES)
    )
    log_wealth_K = logsumexp(path_KS, axis=-1) - math.log(len(SHARES))
    return (agreed_K <= n) & (log_wealth_K >= math.log(2 / level))


def bet_seeds(chance: float, stop: Stop, power: float = 0.8) -> int | None:
    """Return the smallest cap, in whole blocks up to CAP, with which two runs both decide with the power."""
    found = decided(chance, replace(stop, cap=CAP // stop.block * stop.block)) ** 2 >= power
    return (int(found.argmax()) + 1) * stop.block if found.any() else None
