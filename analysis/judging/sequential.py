"""Evidence about medians and frequencies that may be looked at whenever seeds have been added.

lost = paired(table, "accuracy", {"lag": 0}, {"lag": 64})
return median_exceeds(lost, 0.05, note)                  # most seeds lose more than 0.05
return median_within({"lag 4": …, "lag 8": …}, 0.05, note)  # |median| below the margin in every group
return happens_more_often(first, second, note)           # of two events, in pairs
return happens_mostly(event, note)                       # on more than half of all seeds

Every seed is a bet of a fixed share of what is there on the sign of x - margin. While the median is at most
the margin, wealth has no drift upwards, so that its chance to ever reach 1/p is at most p (Ville 1939),
wherever one stops and whatever the law of x is: nothing is assumed of accuracies, which pile up at 0 and 1
and have two peaks where some seeds collapse. p is one over the largest wealth so far. Thirteen seeds that
agree decide at one in a hundred; a mean of values in [-1, 1] with so little assumed would need hundreds.
Units must be in the order in which they came, which `paired` keeps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from analysis.judging.claims import Evidence, everywhere
from envs.arrays import Floats
from testbed.testing.e_process import SHARES

LEVEL = 0.05
"""Chance that a confidence sequence ever misses."""


def wealth_against_a_coin(won_N: ArrayLike, chance: ArrayLike = 0.5) -> tuple[Any, Any]:
    """Return the largest wealth so far of bets that a win has more, and that it has less, than its chance.

    won_N: 1 for a win, 0 for a loss, 1/2 for neither; or [C, N] of C candidates, or C chances [C, 1], for as
    many of both. The bets are those of testbed.testing.e_process.EProcess(chance, (0, 1)).
    """
    won_N, chance_C = np.asarray(won_N, dtype=np.float64), np.asarray(chance, dtype=np.float64)
    return _largest(won_N, chance_C), _largest(1 - won_N, 1 - chance_C)


def _largest(won_N: Floats, chance_C: Floats) -> Any:
    path_KN = np.cumsum(np.log1p(np.multiply.outer(SHARES, (won_N - chance_C) / chance_C)), axis=-1)
    log_wealth_N = logsumexp(path_KN, axis=0) - math.log(len(SHARES))
    return np.exp(np.clip(log_wealth_N.max(axis=-1, initial=0.0), 0.0, 700.0))


def median_exceeds(x: ArrayLike | Mapping[Any, ArrayLike], margin: float, note: str) -> Evidence:
    """Return evidence that x is above the margin more often than below, in every group of units.

    effect: the median less the margin, with a confidence sequence of it; groups as in claims.everywhere.
    """
    groups = x if isinstance(x, Mapping) else {"": x}
    if not isinstance(x, Mapping):
        return _median(np.asarray(x, dtype=np.float64), margin, note)
    return everywhere(groups, note, lambda x_N, said: _median(np.asarray(x_N), margin, said))


def median_stays_below(x: ArrayLike | Mapping[Any, ArrayLike], margin: float, note: str) -> Evidence:
    """Return evidence that x is below the margin more often than above. Effect: margin less the median."""
    if isinstance(x, Mapping):
        return median_exceeds({name: -np.asarray(x_N) for name, x_N in x.items()}, -margin, note)
    return median_exceeds(-np.asarray(x, dtype=np.float64), -margin, note)


def _median(x_N: Floats, margin: float, note: str) -> Evidence:
    n = x_N.size
    if n == 0:
        return Evidence(math.nan, -math.inf, math.inf, 1.0, 0, note)
    up, down = wealth_against_a_coin(_above(x_N, margin))
    effect = float(np.median(x_N)) - margin
    # Wealth of the past may point where the median no longer is: that decides nothing.
    p = min(1.0, 2.0 / (up if effect > 0 else down))
    low, high = median_sequence(x_N)
    return Evidence(effect, low - margin, high - margin, p, n, note, cells=n)


def _above(x_N: Floats, margin: ArrayLike) -> Floats:
    """Return 1 above the margin, 0 below, 1/2 at it."""
    return np.asarray(0.5 * (1.0 + np.sign(x_N - np.asarray(margin))))


def median_sequence(x_N: ArrayLike, level: float = LEVEL) -> tuple[float, float]:
    """Return the ends of a confidence sequence for the median: medians that no bet has ever ruled out.

    It covers at every n at once with chance 1 - level. Ends are among the values; -inf and inf while there
    are too few.
    """
    x_N = np.asarray(x_N, dtype=np.float64)
    value_C = np.unique(x_N)
    between_C = (value_C[1:] + value_C[:-1]) / 2
    up_C, _ = wealth_against_a_coin(_above(x_N, np.array([-np.inf, *between_C])[:, None]))
    _, down_C = wealth_against_a_coin(_above(x_N, np.array([*between_C, np.inf])[:, None]))
    low = value_C[up_C >= 2 / level].max(initial=-np.inf)
    high = value_C[down_C >= 2 / level].min(initial=np.inf)
    return float(low), float(high)


def median_within(
    pairs: Mapping[Any, ArrayLike], margin: float, note: str, floored: Sequence[str] = ()
) -> Evidence:
    """Return evidence that |median(x)| < margin in every group of paired differences.

    effect = margin - |median| of the worst group. Inside: both of its ends are ruled out, in every group.
    Outside: one end of a group is passed; p times twice the number of groups. Groups that are `floored`, see
    comparisons.at_floor, are no evidence of equality. The margin must be chosen before looking.
    """
    groups = {name: np.asarray(x_N, dtype=np.float64).ravel() for name, x_N in pairs.items()}
    if not groups or any(x_N.size == 0 for x_N in groups.values()):
        return Evidence(math.nan, -math.inf, math.inf, 1.0, 0, note)
    rooms = {name: _room(x_N, margin) for name, x_N in groups.items()}
    inside = all(room.effect > 0 for room in rooms.values())
    worst = (
        max(rooms, key=lambda name: rooms[name].p)
        if inside
        else min(rooms, key=lambda name: rooms[name].effect)
    )
    found = rooms[worst]
    p = found.p if inside else min(1.0, len(rooms) * found.p)
    if floored:
        note += f"; both arms at the floor, where nothing can differ: {', '.join(floored)}"
        p = 1.0 if inside else p
    sizes = [x_N.size for x_N in groups.values()]
    note += f"; worst: {worst}"
    return replace(found, p=p, n=min(sizes), note=note, arms=len(sizes), cells=sum(sizes))


def _room(x_N: Floats, margin: float) -> Evidence:
    """Return margin - |median|, its confidence sequence, and the two-sided p."""
    (above_low, below_low), (above_high, below_high) = (
        wealth_against_a_coin(_above(x_N, end)) for end in (-margin, margin)
    )
    effect = margin - abs(float(np.median(x_N)))
    p = 2.0 / min(above_low, below_high) if effect > 0 else 4.0 / max(below_low, above_high)
    low, high = median_sequence(x_N)
    nearest = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    return Evidence(effect, margin - max(abs(low), abs(high)), margin - nearest, min(1.0, p), x_N.size, "")


def happens_mostly(event_N: Sequence[bool] | pd.Series, note: str) -> Evidence:
    """Return evidence that an event has a chance above 1/2. effect: its share less 1/2."""
    return _share(np.asarray(event_N, dtype=np.float64), len(event_N), note)


def happens_more_often(first: pd.Series, second: pd.Series, note: str) -> Evidence:
    """Return evidence that the first event, above 1/2, is the more frequent one, in pairs of one index.

    Only pairs in which one of the two happened say anything; effect: the share of the first among them, less
    1/2, 0 without such pairs.
    """
    both = pd.DataFrame({"first": first, "second": second}).dropna() > 0.5
    alone = both[both["first"] != both["second"]]
    found = _share(alone["first"].to_numpy(dtype=np.float64), len(both), note)
    return replace(found, cells=2 * len(both))


def _share(won_N: Floats, units: int, note: str) -> Evidence:
    """Return the evidence that wins have a chance above 1/2, with a confidence sequence of it."""
    if won_N.size == 0:
        return Evidence(0.0 if units else math.nan, -0.5, 0.5, 1.0, units, note, cells=units)
    up, down = wealth_against_a_coin(won_N)
    effect = float(won_N.mean()) - 0.5
    p = min(1.0, 2.0 / (up if effect > 0 else down))
    low, high = share_sequence(won_N)
    return Evidence(effect, low - 0.5, high - 0.5, p, units, note, cells=units)


def share_sequence(won_N: ArrayLike, level: float = LEVEL, grid: int = 200) -> tuple[float, float]:
    """Return the ends of a confidence sequence for the chance of a win, to 1/grid, rounded outwards."""
    chance_C = np.arange(1, grid) / grid
    up_C, down_C = wealth_against_a_coin(won_N, chance_C[:, None])
    low = chance_C[up_C >= 2 / level].max(initial=0.0)
    high = chance_C[down_C >= 2 / level].min(initial=1.0)
    return float(low), float(high)
