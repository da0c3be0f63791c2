"""Bets against a mean: e-processes for bounded data, valid at every sample size at once."""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from envs.arrays import Floats
from testbed.errors import UserError, unknown
from testbed.testing.draws import check_bounds

SIDES = ("above", "below", "both")

SHARES = 0.9 * 0.5 ** np.arange(13)
"""Bets as shares of the largest admissible one, with equal weights: small bets detect small deviations."""


class EProcess:
    """Wealth of bets that E X is not `mean`: the average over bets b of prod_i (1 + b (x_i - mean)).

    "above" bets that the mean is larger (a supermartingale while E X <= mean), "below" that it is smaller
    (while E X >= mean), "both" averages the two (a martingale at E X = mean). Started at 1, it ever reaches
    1/rate with probability at most `rate` (Ville). Bets are fixed in advance, so prior knowledge of x_i does
    not matter if its conditional mean is right.

    Args:
        mean: of the hypothesis, strictly within the bounds.
        bounds: every draw lies in [low, high].
        side: above, below or both.
    """

    def __init__(self, mean: float, bounds: tuple[float, float], side: str = "both") -> None:
        low, high = bounds
        if side not in SIDES:
            raise unknown("side", side, SIDES)
        if not low < mean < high:
            raise UserError(f"mean is {mean:g}, expected strictly within the bounds {low:g} and {high:g}.")
        self.mean, self.bounds = mean, bounds
        up, down = SHARES / (mean - low), -SHARES / (high - mean)
        bets = {"above": [up], "below": [down], "both": [up, down]}[side]
        self._bet_K = np.concatenate(bets)
        self._log_wealth_K = np.full(self._bet_K.size, -math.log(self._bet_K.size))

    def add(self, x_N: ArrayLike) -> Floats:
        """Add draws; return log wealth after each of them, [N].

        Raises UserError for a draw outside the bounds, where a bet could lose more than the wealth.
        """
        x_N = np.asarray(x_N, dtype=np.float64)
        if x_N.size == 0:
            return np.zeros(0)
        check_bounds(x_N, self.bounds)
        path_NK = self._log_wealth_K + np.cumsum(np.log1p((x_N[:, None] - self.mean) * self._bet_K), axis=0)
        self._log_wealth_K = path_NK[-1]
        return np.asarray(logsumexp(path_NK, axis=-1))


class SequentialMean:
    """Decide between "E X = mean" and "|E X - mean| >= discrepancy" as draws arrive.

    "biased" once the wealth against the mean reaches 1/false_alarm; "equivalent" once the wealth against a
    mean <= mean - discrepancy and that against a mean >= mean + discrepancy have both reached 1/missed. Each
    error then has at most its declared probability, for every distribution within the bounds.
    """

    def __init__(
        self, mean: float, discrepancy: float, bounds: tuple[float, float], false_alarm: float, missed: float
    ) -> None:
        self.verdict: str | None = None
        self.n = 0
        self.log_e_value = 0.0
        self._log_rates = (-math.log(false_alarm), -math.log(missed))
        self._alarm = EProcess(mean, bounds)
        # A mean beyond the bounds is impossible: that side is decided before the first draw.
        self._sides = []
        if mean - discrepancy > bounds[0]:
            self._sides.append(EProcess(mean - discrepancy, bounds, "above"))
        if mean + discrepancy < bounds[1]:
            self._sides.append(EProcess(mean + discrepancy, bounds, "below"))
        self._rejected = [False] * len(self._sides)
        if not self._sides:
            raise UserError(
                f"No mean within the bounds {bounds} is {discrepancy:g} away from {mean:g}; nothing to test."
            )

    def add(self, x_N: Floats) -> None:
        """Add draws until a verdict; later ones are ignored."""
        if x_N.size == 0 or self.verdict is not None:
            return
        alarm_N = self._alarm.add(x_N)
        # Each side counts from its first crossing: once rejected, it stays rejected.
        rejected_N = np.full(x_N.size, True)
        for index, side in enumerate(self._sides):
            reached_N = np.logical_or.accumulate(side.add(x_N) >= self._log_rates[1])
            rejected_N &= reached_N | self._rejected[index]
            self._rejected[index] |= bool(reached_N.any())
        biased_N = alarm_N >= self._log_rates[0]
        stop_N = biased_N | rejected_N
        if not stop_N.any():
            self.n += x_N.size
            self.log_e_value = float(alarm_N[-1])
            return
        first = int(np.argmax(stop_N))
        self.n += first + 1
        self.log_e_value = float(alarm_N[first])
        self.verdict = "biased" if biased_N[first] else "equivalent"


class SequentialSide:
    """Decide between "E X is `good` or beyond it" and "E X is `bad` or beyond it" as draws arrive.

    "bad" once the wealth against a mean on the far side of `good` reaches 1/false_alarm; "good" once that
    against a mean on the far side of `bad` reaches 1/missed. good < bad tests for a small mean, good > bad
    for a large one. Each error has at most its declared probability, for every distribution within the
    bounds.
    """

    def __init__(
        self, good: float, bad: float, bounds: tuple[float, float], false_alarm: float, missed: float
    ) -> None:
        if not (bounds[0] < min(good, bad) < max(good, bad) < bounds[1]):
            raise UserError(
                f"Means {good:g} and {bad:g} must differ and lie strictly within the bounds {bounds[0]:g} "
                f"and {bounds[1]:g} of a draw; beyond them there is nothing to test."
            )
        self.verdict: str | None = None
        self.n = 0
        self.log_e_value = 0.0
        self._log_rates = (-math.log(false_alarm), -math.log(missed))
        small = good < bad
        self._alarm = EProcess(good, bounds, "above" if small else "below")
        self._proof = EProcess(bad, bounds, "below" if small else "above")

    def add(self, x_N: Floats) -> None:
        """Add draws until a verdict; later ones are ignored."""
        if x_N.size == 0 or self.verdict is not None:
            return
        alarm_N, proof_N = self._alarm.add(x_N), self._proof.add(x_N)
        bad_N, good_N = alarm_N >= self._log_rates[0], proof_N >= self._log_rates[1]
        stop_N = bad_N | good_N
        last = int(np.argmax(stop_N)) if stop_N.any() else x_N.size - 1
        self.n += last + 1
        self.log_e_value = float(alarm_N[last])
        if stop_N[last]:
            self.verdict = "bad" if bad_N[last] else "good"
