"""Cells at the learning rates that a committed table of tuning runs chose for their arms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from analysis.sweeps.tuning import ARGS, at_best_rates, best_rates
from analysis.tables.cell_table import words

if TYPE_CHECKING:
    from testbed.config.run import Run


def tuned(
    cells: Iterable[Run],
    table: str = "phase-diagram",
    by: Sequence[str] = ("recipe", "lag"),
    outcome: str = "accuracy",
) -> tuple[Run, ...]:
    """Return the cells, each at the best rate of its arm in a committed table; see tuning.at_best_rates.

    table: name of an experiment whose seeds are tuning seeds. by: columns that tell its arms apart; the
    arguments of the recipe may be one, where at_best_rates would take them for a tuned knob.
    """
    from analysis.tables.committed import load_committed

    best = best_rates(load_committed([table])[table].frame, by, outcome)
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
