"""What claims on a table say of it: arms are paired, and a difference must exceed a margin or vanish.

lost = paired(table, "accuracy", {"recipe": "rec", "lag": 0}, {"recipe": "rec", "lag": 64})
return must_exceed(lost, 0.05, note)                    # one group: Student's t test
return must_exceed({"lag 4": …, "lag 8": …}, 0.05, note)  # in every group
return must_vanish({"lag 4": …, "lag 8": …}, 0.05, note)  # |mean| below the margin in every group
return must_happen_more_often(first, second, note)      # of two events, in pairs: McNemar
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special

from analysis.judging.claims import Evidence, everywhere, mean_above_zero, more_often
from analysis.judging.intervals import student_interval
from envs.arrays import Floats
from testbed.errors import UserError, unknown

Arm: TypeAlias = Mapping[str, Any]
"""Columns and their values: which rows are an arm."""


def arm(table: pd.DataFrame, value: str, where: Arm, by: str | list[str] = "seed") -> pd.Series:
    """Return a column of an arm's rows, indexed by what pairs them, in its order; empty without such rows.

    Raises UserError for a column that is not there, and for two rows of one pair.
    """
    keys = [by] if isinstance(by, str) else by
    _need(table, [value, *where, *keys])
    rows = table
    for column, wanted in where.items():
        rows = rows[rows[column] == wanted]
    found = rows.set_index(by)[value].sort_index()
    if found.index.has_duplicates:
        twice = found.index[found.index.duplicated()][0]
        raise UserError(
            f"Two rows with {dict(where)} share {' and '.join(keys)} {twice}; say what tells them apart."
        )
    return found


def _need(table: pd.DataFrame, columns: list[str]) -> None:
    for column in columns:
        if column not in table:
            raise unknown("column of the table", column, map(str, table.columns))


def arms(table: pd.DataFrame, value: str, by_name: Mapping[str, Arm]) -> pd.DataFrame:
    """Return a column of every arm, a row per seed that all of them have."""
    return pd.DataFrame({name: arm(table, value, where) for name, where in by_name.items()}).dropna()


def paired(table: pd.DataFrame, value: str, first: Arm, second: Arm) -> Floats:
    """Return a column of the first arm minus that of the second, for every seed that both have."""
    difference = (arm(table, value, first) - arm(table, value, second)).dropna()
    return np.asarray(difference, dtype=np.float64)


def paired_by(
    table: pd.DataFrame, value: str, first: Arm, second: Arm, group: str, *, other: Any = None
) -> dict[Any, Floats]:
    """Return `paired` for every value of a column, those without a pair left out.

    other: the value of that column in the second arm, in place of the same one; its own group is left out.
    """
    _need(table, [group])
    groups = {}
    for level in sorted(set(table[group].dropna())):
        there = level if other is None else other
        if other is None or level != other:
            groups[level] = paired(table, value, {**first, group: level}, {**second, group: there})
    return {level: x_N for level, x_N in groups.items() if x_N.size}


def shown(groups: Mapping[Any, ArrayLike], digits: int = 4) -> str:
    """Return "+0.0012 at 4, -0.0300 at 8": the mean of every group."""
    return ", ".join(
        f"{np.mean(np.asarray(x_N, dtype=np.float64)):+.{digits}f} at {name}" for name, x_N in groups.items()
    )


def must_exceed(x: ArrayLike | Mapping[Any, ArrayLike], margin: float, note: str) -> Evidence:
    """Return evidence that the mean exceeds the margin, of independent units or of every group of them.

    Units: Student's t test, see mean_above_zero. Groups: see everywhere; the note names all means less the
    margin.
    """
    if not isinstance(x, Mapping):
        return mean_above_zero(np.asarray(x, dtype=np.float64) - margin, note)
    less = {name: np.asarray(x_N, dtype=np.float64) - margin for name, x_N in x.items()}
    return everywhere(less, note)


def must_stay_below(x: ArrayLike | Mapping[Any, ArrayLike], margin: float, note: str) -> Evidence:
    """Return evidence that the mean, of units or every group, is below the margin. Effect: margin - mean."""
    if not isinstance(x, Mapping):
        return must_exceed(-np.asarray(x, dtype=np.float64), -margin, note)
    return must_exceed({name: -np.asarray(x_N, dtype=np.float64) for name, x_N in x.items()}, -margin, note)


def must_happen_more_often(first: pd.Series, second: pd.Series, note: str) -> Evidence:
    """Return evidence that the first event, above 1/2, is more frequent than the second: exact McNemar test.

    Pairs are what both have. See more_often.
    """
    pairs = pd.DataFrame({"first": first, "second": second}).dropna() > 0.5
    return more_often(list(pairs["first"]), list(pairs["second"]), note)


def short_of(found: float, least: float) -> float:
    """Return by how much `found` misses a bound from below, 0 when it reaches it; NaN stays."""
    return found if np.isnan(found) else max(0.0, least - found)


def must_vanish(
    pairs: Mapping[Any, ArrayLike], margin: float, note: str, floored: Collection[str] = ()
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
        note += f"; equal in every pair: {', '.join(map(str, equal))}"
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
