"""Set cells to the learning rates that a committed tuning table selected for their arms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import pandas as pd

from analysis.sweeps.tuning import ARGS, RATE, arm_of, at_best_rates, best_rates, by_arm
from analysis.tables.cell_table import words
from analysis.tables.committed import Table, load_committed
from testbed.config.run import Run

_CHOSEN: ContextVar[list[tuple[Run, Mapping[str, Any]]] | None] = ContextVar("rates chosen", default=None)


@contextmanager
def choosing() -> Iterator[list[tuple[Run, Mapping[str, Any]]]]:
    """Collect the cells that `tuned` returns inside, each with its arm's row of `best_rates`."""
    found: list[tuple[Run, Mapping[str, Any]]] = []
    token = _CHOSEN.set(found)
    try:
        yield found
    finally:
        _CHOSEN.reset(token)


def tuned(
    cells: Iterable[Run],
    table: str = "phase-diagram",
    by: Sequence[str] = ("recipe", "lag"),
    outcome: str = "accuracy",
) -> tuple[Run, ...]:
    """Return the cells, each at the best rate of its arm in a committed table; see tuning.at_best_rates.

    table: name of an experiment whose seeds are tuning seeds. by: columns that identify its arms, which may
    include the recipe's arguments; at_best_rates would otherwise take them for a tuned knob.
    """
    read = load_committed([table])[table]
    best = _best(read, tuple(by), outcome)
    found = _at_best(cells, best, by)
    if (chosen := _CHOSEN.get()) is not None:
        rows = by_arm(best, by)
        chosen += [(cell, rows[arm_of(cell, by)]) for cell in found]
    return found


_BEST: dict[tuple[str, tuple[str, ...], str], pd.DataFrame] = {}
"""Best rates by digest of the table, columns and outcome: one table tunes many experiments."""


def _best(table: Table, by: tuple[str, ...], outcome: str) -> pd.DataFrame:
    asked = (table.sha256, by, outcome)
    if asked not in _BEST:
        _BEST[asked] = best_rates(table.frame, by, outcome, common=_common(table.frame, by))
    return _BEST[asked]


def _common(frame: pd.DataFrame, by: tuple[str, ...]) -> float | None:
    """Return None, the best rate that all arms share, or the most frequent rate if they share none."""
    arms = frame.groupby(list(by), dropna=False)[RATE].agg(set)
    return None if set.intersection(*arms) else float(frame[RATE].mode().iloc[0])


def _at_best(cells: Iterable[Run], best: pd.DataFrame, by: Sequence[str]) -> tuple[Run, ...]:
    if ARGS not in by:
        return at_best_rates(cells, best)
    arms = {args: rows.drop(columns=ARGS) for args, rows in best.groupby(ARGS)}
    found = []
    for cell in cells:
        (at_rate,) = at_best_rates(
            [replace(cell, recipe_args=())], arms.get(words(cell.recipe_args), best[:0])
        )
        found.append(replace(at_rate, recipe_args=cell.recipe_args))
    return tuple(found)
