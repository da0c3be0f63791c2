"""Compute the chance that a design decides a gap: two runs of bets on signs, looked at after every block."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import numpy as np
from scipy import stats

from analysis.experiment import Stop
from analysis.judging import bets, rule
from envs.arrays import Bools, Floats

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
    for n, weight_K in _ends(chance, stop, lambda n: _largest(n) >= rule.FIRST_RUN):
        for k in np.flatnonzero((weight_K > 0) & (_largest(n) >= rule.WORTH_A_REPLICATION)).tolist():
            enough, wins = _with_first_run(k, n, rule.ENOUGH), _with_first_run(k, n, at)
            after = _ends(chance, stop, enough)
            total += float(weight_K[k]) * sum(float(each_K @ wins(n2)) for n2, each_K in after)
    return total


def bet_seeds(chance: float, stop: Stop, power: float = 0.8) -> int | None:
    """Return the smallest cap, in whole blocks up to CAP, with which both runs decide with the power."""
    for cap in range(stop.block, CAP + 1, stop.block):
        if decided(chance, replace(stop, cap=cap)) >= power:
            return cap
    return None


def _with_first_run(k: int, n: int, least: float) -> Callable[[int], Bools]:
    """Return whether a replication raises a first run, with k of n seeds agreeing, to this evidence.

    The function takes the replication's seeds and returns an answer for every number that agreed.
    """
    return lambda n2: (_above(n + n2)[k : k + n2 + 1] >= least) & (_above(n2) > 1)


def _ends(chance: float, stop: Stop, enough: Callable[[int], Bools]) -> Iterator[tuple[int, Floats]]:
    """Yield the seeds at every look, and the chance that the run ends there by the number that agreed."""
    agreed_K: Floats = np.ones(1)
    more_K = stats.binom.pmf(np.arange(stop.block + 1), stop.block, chance)
    for n in range(stop.block, stop.cap + 1, stop.block):
        agreed_K = np.convolve(agreed_K, more_K)
        ends_K = enough(n) | (n == stop.cap)
        yield n, np.where(ends_K, agreed_K, 0.0)
        agreed_K = np.where(ends_K, 0.0, agreed_K)


@cache
def _above(n: int) -> Floats:
    """Return the e-value of n seeds by the number that agreed, 0 to n."""
    return np.array([bets.shares(k, n - k)[0] for k in range(n + 1)])


def _largest(n: int) -> Floats:
    return np.maximum(_above(n), _above(n)[::-1])
