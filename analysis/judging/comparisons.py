"""Comparisons that claims make on a table: the difference of paired arms, against a margin.

lost = paired(table, "accuracy", {"recipe": "rec", "lag": 0}, {"recipe": "rec", "lag": 64})
return median_within({"lag 4": …, "lag 8": …}, 0.05, note)   # |median| below the margin in every group
return happens_more_often(first, second, note)             # of two events, in pairs
return happens_mostly(event, note)                         # on more than half of all seeds

Medians and shares assume only that units are independent: accuracies pile up at 0 and 1 and have two peaks
where some seeds collapse. Means take units as Gaussian, as Student's t does.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from analysis.judging.e_values import MEDIAN, SHARE, Evidence, exceeds, within
from analysis.judging.seed_intervals import student_interval
from envs.arrays import Floats
from testbed.errors import UserError, unknown

Arm: TypeAlias = Mapping[str, Any]
"""Columns and their values, which select the rows of an arm."""


class Read(NamedTuple):
    """Arguments of a check's call of `arm`: column, arm, and its values."""

    column: str
    where: Arm
    values: Floats


_READ: ContextVar[list[Read] | None] = ContextVar("arms read", default=None)


@contextmanager
def reading() -> Iterator[list[Read]]:
    """Collect the calls of `arm` inside, so that gates see what a check compared; may be nested."""
    found: list[Read] = []
    token = _READ.set(found)
    try:
        yield found
    finally:
        _READ.reset(token)
        if (outer := _READ.get()) is not None:
            outer += found


def arm(table: pd.DataFrame, value: str, where: Arm, by: str | list[str] = "seed") -> pd.Series:
    """Return a column of an arm's rows by the columns that pair them, in order; empty without such rows.

    Raises UserError for a missing column, and for two rows of one pair.
    """
    keys = [by] if isinstance(by, str) else by
    for column in [value, *where, *keys]:
        if column not in table:
            raise unknown("column of the table", column, map(str, table.columns))
    places_N = places(table, where)
    key_N = table[keys].take(places_N)
    index = pd.Index(key_N[by]) if isinstance(by, str) else pd.MultiIndex.from_frame(key_N)
    found = pd.Series(table[value].to_numpy()[places_N], index, name=value).sort_index()
    if found.index.has_duplicates:
        twice = found.index[found.index.duplicated()][0]
        raise UserError(
            f"Two rows with {dict(where)} share {' and '.join(keys)} {twice}. Name the column that tells "
            "them apart."
        )
    if (read := _READ.get()) is not None and found.size:
        read.append(Read(value, where, found.to_numpy(dtype=np.float64)))
    return found


_MET: list[tuple[pd.DataFrame, dict[tuple[str, ...], Mapping[Any, Any]]]] = []
"""Tables read last, with the row numbers of every combination of some columns' values."""


def places(table: pd.DataFrame, where: Arm) -> NDArray[np.intp]:
    """Return the row numbers of an arm in order; a table is sorted into arms only once."""
    met = next((known for each, known in _MET if each is table), None)
    if met is None or not where:
        # A table read once is not worth sorting: its first arm is found by a scan.
        _MET[:] = [(table, {}), *_MET[:3]]
        here = np.ones(len(table), dtype=bool)
        for column, wanted in where.items():
            here &= (table[column] == wanted).to_numpy(dtype=bool)
        return np.flatnonzero(here)
    columns = tuple(where)
    if columns not in met:
        met[columns] = table.groupby(list(columns) if len(columns) > 1 else columns[0]).indices
    key = tuple(where.values()) if len(columns) > 1 else where[columns[0]]
    return np.asarray(met[columns].get(key, ()), dtype=np.intp)


def arms(table: pd.DataFrame, value: str, by_name: Mapping[str, Arm]) -> pd.DataFrame:
    """Return a column of every arm, with a row for each seed that all arms have."""
    return pd.DataFrame({name: arm(table, value, where) for name, where in by_name.items()}).dropna()


def paired(table: pd.DataFrame, value: str, first: Arm, second: Arm) -> Floats:
    """Return a column of the first arm minus that of the second, for every seed that both have."""
    difference = (arm(table, value, first) - arm(table, value, second)).dropna()
    return np.asarray(difference, dtype=np.float64)


def shown(groups: Mapping[Any, ArrayLike], digits: int = 4) -> str:
    """Return "+0.0012 at 4, -0.0300 at 8": the mean of every group."""
    return ", ".join(
        f"{np.mean(np.asarray(x_N, dtype=np.float64)):+.{digits}f} at {name}" for name, x_N in groups.items()
    )


def median_within(pairs: Mapping[Any, ArrayLike], margin: float, note: str) -> Evidence:
    """Return evidence that |median(x)| < margin in every group of paired differences."""
    return within(pairs, margin, note, MEDIAN)


def happens_mostly(event_N: Sequence[bool] | pd.Series, note: str) -> Evidence:
    """Return evidence that an event has a probability above 1/2."""
    return exceeds(np.asarray(event_N, dtype=np.float64), 0.5, note, SHARE, null=0.5)


def happens_more_often(first: pd.Series, second: pd.Series, note: str) -> Evidence:
    """Return evidence that the first of two events, paired by index, is the more frequent one.

    Only pairs in which exactly one of the two happened count; effect: the first's share of them. Where the
    second event never happens alone, no number of pairs can refute. Source: McNemar (1947).
    """
    both = pd.DataFrame({"first": first, "second": second}).dropna() > 0.5
    alone = both[both["first"] != both["second"]]
    note += f"; {len(alone)} of {len(both)} pairs differ"
    if alone.empty:
        return Evidence(0.5 if len(both) else math.nan, 0.0, 1.0, len(both), note, "> 0.5")
    found = exceeds(alone["first"].to_numpy(dtype=np.float64), 0.5, note, SHARE, null=0.5)
    return replace(found, n=len(both))


def sooner(outcome: str, first: Arm, second: Arm, times: float = 1.0) -> Callable[[pd.DataFrame], Evidence]:
    """Return the check that the first arm needs under 1/times of the second arm's number, on most seeds.

    A run that never reaches the accuracy needs infinitely many; two such runs count as no saving.
    """

    def check(table: pd.DataFrame) -> Evidence:
        both = pd.DataFrame(
            {name: arm(table, outcome, where).fillna(np.inf) for name, where in (("a", first), ("b", second))}
        ).dropna()
        ratio = (both["b"] / both["a"]).replace([np.inf, -np.inf], np.nan).median()
        never = " and ".join(str(int(np.isinf(both[name]).sum())) for name in both)
        note = (
            f"share of seeds on which the first needs under 1/{times:g} of the second; median quotient "
            f"{ratio:.2f}; never there: {never} of {len(both)}"
        )
        return happens_mostly(both["a"] * times < both["b"], note)

    return check


def short_of(found: float, least: float) -> float:
    """Return how far `found` misses a bound from below, 0 when it reaches it; NaN stays NaN."""
    return found if np.isnan(found) else max(0.0, least - found)


def at_floor(arms: Iterable[ArrayLike], margin: float, floor: float = 0.0) -> bool:
    """Return whether no arm's mean is clear of floor + margin: its 95% Student interval begins below.

    Values cannot fall below the floor, so arms this near to it differ by less than the margin in any case:
    their equality is no evidence. An arm with at most one value is not clear.
    """
    values = [np.asarray(x_N, dtype=np.float64).ravel() for x_N in arms]
    return not any(x_N.size > 1 and student_interval(x_N).low > floor + margin for x_N in values)
