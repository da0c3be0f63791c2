"""Outcomes of the cells of one finished pack, for displays of a running sweep."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from analysis.sweeps.sweep_table import usual_metric
from analysis.tables.outcomes import ACCURACY, DIVERGED, outcome
from testbed.results.parquet import decode
from testbed.user_files import short_names

CELL = re.compile(r"[^/]*/(?P<recipe>.+)/lag(?P<lag>\d+)/seed\d+-[0-9a-f]{12}")


@dataclass(frozen=True)
class Finished:
    """One cell: best and last value of accuracy (means of logged rows, as for the closing table) or of
    another metric (single rows); collapsed is None without an accuracy.
    """

    cell: str
    best: float
    last: float
    collapsed: bool | None
    diverged: bool


def finished(content: bytes) -> Iterator[Finished]:
    """Yield the outcome of every cell in a pack's result file."""
    rows = decode(content).to_pandas().sort_values("step")
    metric = usual_metric(rows)
    for cell, part in rows.groupby("cell", sort=False):
        diverged = DIVERGED in part and bool((part[DIVERGED] != 0).any())
        if metric == ACCURACY:
            found = outcome(part)
            yield Finished(str(cell), found["best"], found["final"], found["collapsed"] > 0, diverged)
        else:
            yield Finished(str(cell), part[metric].max(), part[metric].iloc[-1], None, diverged)


def arm_of(cell: str, with_lag: bool = True) -> str:
    """Return "grpo, lag 16" for a cell's id, or the id itself if it has another form."""
    match = CELL.fullmatch(cell)
    if not match:
        return cell
    recipe = short_names([match["recipe"]])[match["recipe"]]
    return f"{recipe}, lag {match['lag']}" if with_lag else recipe
