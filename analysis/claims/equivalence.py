"""Evidence that two things are equal up to a margin: two one-sided tests."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from analysis.claims.base import Evidence
from analysis.intervals import student_interval


def equivalent(
    pairs: Mapping[str, ArrayLike], margin: float, note: str, floored: Collection[str] = ()
) -> Evidence:
    """Return evidence that |mean(x)| < margin in every group of paired differences x: Student's two tests.

    effect = margin - |mean(x)| in the worst group, with the interval that the 95% one of mean(x) gives. All
    groups inside: two-sided p = 2 max over groups of the larger of the two one-sided p-values; all of them
    must reject, so there is nothing to correct for. A group outside: p of its excess, times the number of
    groups. Groups of exact zeros are equal without a test; fewer than two units, or other units that are all
    equal, decide nothing (p = 1). Nor do groups that are all inside when some are `floored`, see `at_floor`.
    The margin must be chosen before looking. Source: Schuirmann (1987).
    """
    groups = {name: np.asarray(x_N, dtype=np.float64).ravel() for name, x_N in pairs.items()}
    tested = {name: x_N for name, x_N in groups.items() if x_N.size == 0 or np.any(x_N != 0)}
    equal = [name for name in groups if name not in tested]
    if equal:
        note += f"; equal in every pair: {', '.join(equal)}"
    if not tested:
        return Evidence(math.nan, -math.inf, math.inf, 1.0, 0, note)
    rooms = {name: _room(x_N, margin) for name, x_N in tested.items()}
    worst = min(rooms, key=lambda name: (rooms[name][0], -rooms[name][3]))
    effect, low, high, p = rooms[worst]
    p = max(room[3] for room in rooms.values()) if effect > 0 else min(1.0, len(rooms) * p)
    if floored:
        note += f"; both arms at the floor, where nothing can differ: {', '.join(floored)}"
        p = 1.0 if effect > 0 else p
    sizes = [x_N.size for x_N in tested.values()]
    note += f"; worst: {worst}"
    return Evidence(effect, low, high, p, min(sizes), note, arms=len(sizes), cells=sum(sizes))


def at_floor(arms: Iterable[ArrayLike], margin: float, floor: float = 0.0) -> bool:
    """Whether no arm's mean is clear of floor + margin: the lower end of its 95% Student interval is below.

    Values cannot fall below the floor, so that arms this near to it differ by less than the margin whatever
    was done to them: their equality is no evidence. An arm of one value, or without any, is not clear.
    """
    values = [np.asarray(x_N, dtype=np.float64).ravel() for x_N in arms]
    return not any(x_N.size > 1 and student_interval(x_N).low > floor + margin for x_N in values)


def _room(x_N: NDArray[np.float64], margin: float) -> tuple[float, float, float, float]:
    """Return margin - |mean|, its interval, and the two-sided p against 0."""
    n = x_N.size
    if n == 0:
        return -math.inf, -math.inf, math.inf, 1.0
    mean = float(x_N.mean())
    spread = float(x_N.std(ddof=1)) if n > 1 else 0.0
    effect = margin - abs(mean)
    if spread <= 1e-12 * abs(mean):  # one unit, or equal up to rounding
        return effect, -math.inf, math.inf, 1.0
    found = student_interval(x_N)
    nearest = 0.0 if found.low <= 0 <= found.high else min(abs(found.low), abs(found.high))
    p = 2 * float(special.stdtr(n - 1, -abs(effect) / (spread / math.sqrt(n))))
    return effect, margin - max(abs(found.low), abs(found.high)), margin - nearest, p
