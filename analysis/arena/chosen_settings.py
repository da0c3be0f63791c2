"""Cells of arms at the settings that the committed table chose for them."""

from collections.abc import Mapping, Sequence

import pandas as pd

from analysis.arena.arms import known
from analysis.arena.halving import cell
from analysis.arena.tasks import TASKS, aged, tuned_at
from analysis.tables.cell_table import words
from testbed.config.run import Run


def cells_of(
    frame: pd.DataFrame, task: str, arms: Mapping[str, Sequence[int]], seeds: Sequence[int]
) -> tuple[Run, ...]:
    """Return the cells of a task, by arm, lag and seed.

    frame: the committed finals. arms: lags by name of an arm. Raises KeyError for arms or settings that the
    table lacks.
    """
    rows = {(row["arm"], row["lag"]): row for row in frame[frame["task"] == task].to_dict("records")}
    found: list[Run] = []
    for name, lag in ((name, lag) for name, lags in arms.items() for lag in lags):
        arm, row = known()[name], rows[name, tuned_at(lag)]
        tried = [cell(TASKS[task], arm, lag, (float(row["rate"]), args), 0) for args in arm.knob]
        chosen = next(run for run in tried if words(run.recipe_args) == row["knob"])
        found += [aged(chosen, lag, seed + arm.shift) for seed in seeds]
    return tuple(found)
