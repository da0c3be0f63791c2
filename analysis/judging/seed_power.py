"""Compute the chance that a design decides a gap: two runs of bets on signs, looked at after every block."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
from scipy import stats

from analysis.experiment import Stop
from analysis.judging import bets, rule
from envs.arrays import Floats

CAP = 256
"""Largest number of seeds in a run of bets."""


def agreeing(gap: float, spread: float) -> float:
    """Return the probability that a normal difference has the sign of the gap."""
    return float(stats.norm.cdf(abs(gap) / spread))


def decided(chance: float, stop: Stop, at: float = rule.USUAL) -> float:
    """Return the exact probability that both runs of a design together earn the right word.

    chance: that a seed agrees. at: threshold on the e-value. The wealth after n seeds depends on how many of
    them agreed, so that (seeds, seeds that agreed) is a chain with a stop at every look; the second run
    starts with what the first has won, and there is none after a first run that has won too little.
    """
    total = 0.0
    for (k, n), weight in _ends(chance, stop, lambda k, n: _largest(k, n) >= rule.FIRST_RUN).items():
        if _largest(k, n) < rule.WORTH_A_REPLICATION:
            continue
        enough = _with_first_run(k, n, rule.ENOUGH)
        after = _ends(chance, stop, enough)
        wins = _with_first_run(k, n, at)
        total += weight * sum(each for (k2, n2), each in after.items() if wins(k2, n2))
    return total


def bet_seeds(chance: float, stop: Stop, power: float = 0.8) -> int | None:
    """Return the smallest cap, in whole blocks up to CAP, with which both runs decide with the power."""
    for cap in range(stop.block, CAP + 1, stop.block):
        if decided(chance, replace(stop, cap=cap)) >= power:
            return cap
    return None


def _with_first_run(k: int, n: int, least: float) -> Callable[[int, int], bool]:
    """Return whether a replication raises a first run, with k of n seeds agreeing, to this evidence."""
    return lambda k2, n2: _above(k + k2, n + n2) >= least and _above(k2, n2) > 1


def _ends(chance: float, stop: Stop, enough: Callable[[int, int], bool]) -> dict[tuple[int, int], float]:
    """Return the probability of every (seeds that agreed, seeds) at which a run ends."""
    ended: dict[tuple[int, int], float] = {}
    agreed_K: Floats = np.ones(1)
    more_K = stats.binom.pmf(np.arange(stop.block + 1), stop.block, chance)
    for n in range(stop.block, stop.cap + 1, stop.block):
        agreed_K = np.convolve(agreed_K, more_K)
        for k, weight in enumerate(agreed_K):
            if n == stop.cap or enough(k, n):
                ended[k, n] = float(weight)
                agreed_K[k] = 0.0
    return ended


@cache
def _above(k: int, n: int) -> float:
    return bets.shares(k, n - k)[0]


def _largest(k: int, n: int) -> float:
    return max(_above(k, n), _above(n - k, n))
