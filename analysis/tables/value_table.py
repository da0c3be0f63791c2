"""Outcomes of tabular runs, where the truth is known: value and ESS, exact beside sampled."""

import pandas as pd

from analysis.judging.seed_intervals import student_interval
from analysis.tables.outcomes import DIVERGED, ESS, cell_fields, need
from analysis.tables.sampled_ess import EXACT

VALUE = "exact/value"


def value_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row per setting (task, recipe, lag and what else varies): means over seeds, value and ESS.

    first, final: exact value at the first and last logged step, with final_low and final_high of a 95%
    Student interval; best: largest on the way; ess_exact, ess_sampled: smallest share over steps, exact (NaN
    where no distribution is known) and from the batch. n: seeds.
    diverged: share of seeds with a loss or gradient that was not finite.
    """
    need(frame, [VALUE, ESS])
    if EXACT not in frame:  # if length decides a sample's version, no exact ESS is logged
        frame = frame.assign(**{EXACT: float("nan")})
    if DIVERGED not in frame:
        frame = frame.assign(**{DIVERGED: 0.0})
    names = cell_fields(frame)
    rows = frame.sort_values("step").groupby(names, sort=True, dropna=False)
    cells = rows.agg(
        first=(VALUE, "first"),
        final=(VALUE, "last"),
        best=(VALUE, "max"),
        ess_exact=(EXACT, "min"),
        ess_sampled=(ESS, "min"),
        diverged=(DIVERGED, lambda flag: float((flag != 0).any())),
    ).reset_index()
    table = cells.groupby([name for name in names if name != "seed"], sort=True, dropna=False)
    means = table[["first", "final", "best", "ess_exact", "ess_sampled", "diverged"]].mean()
    finals = [student_interval(part["final"].to_numpy()) for _, part in table]
    bounds = {"final_low": [each.low for each in finals], "final_high": [each.high for each in finals]}
    return means.assign(**bounds, n=table.size()).reset_index()
