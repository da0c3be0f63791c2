"""One row per cell of a sweep: its settings, and the outcome of every metric.

Metrics are words:
    accuracy, or any logged metric    its final value: the mean over the last 3 logged rows
    best, collapsed, peak_step, …     what analysis.tables.outcomes.outcome says of the cell's accuracy
    steps_to 0.5, rollouts_to 0.5     … of that accuracy; without a number 0.8
    min NAME, max NAME, mean NAME     over all logged rows; first NAME: in the first one
    rise NAME                         final value less that at four fifths of the logged rows
    known NAME, last NAME             mean over, and value in the last of, the rows that have a number
A diverged run has accuracy 0 from there on, as in analysis.tables.outcomes; any other metric that is NaN
where it is read stays NaN.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.tables.committed import Table
from analysis.tables.outcomes import ACCURACY, DIVERGED, READS, ROLLOUTS, WINDOW, need, outcome, reached
from testbed.config.run import Arguments, Run
from testbed.diagnostics.metric_names import METRICS
from testbed.errors import UserError, unknown

FIELDS = tuple(item.name for item in dataclasses.fields(Run))
OUTCOMES = (
    "best", "start", "last", "area", "ess_min", "collapsed", "peak_step", "collapse_step",
    "entropy_collapsed", "entropy_collapse_step", "length_collapsed", "length_collapse_step",
    "diverged_step", "steps_to", "rollouts_to",
)  # fmt: skip
REACHED = {"steps_to": "step", "rollouts_to": ROLLOUTS}
"""Words with an accuracy as argument, and the column read where it is reached."""
BY_DIFFICULTY = re.compile(r"val/accuracy_difficulty_\d+")
DEFAULT = "default"
"""Written for empty arguments, because an empty field of a CSV file would be read as a missing number."""

REDUCTIONS: Mapping[str, Callable[[NDArray[np.float64]], float]] = MappingProxyType(
    {
        "final": lambda x_L: _end(x_L),
        "first": lambda x_L: float(x_L[0]),
        "min": lambda x_L: float(x_L.min()),
        "max": lambda x_L: float(x_L.max()),
        "mean": lambda x_L: float(x_L.mean()),
        "rise": lambda x_L: _end(x_L) - _end(x_L[: max(1, len(x_L) * 4 // 5)]),
        "known": lambda x_L: _known(x_L, lambda known_M: known_M.mean()),
        "last": lambda x_L: _known(x_L, lambda known_M: known_M[-1]),
    }
)


def _end(x_L: NDArray[np.float64]) -> float:
    return float(x_L[-WINDOW:].mean())


def _known(x_L: NDArray[np.float64], reduce: Callable[[NDArray[np.float64]], Any]) -> float:
    """Return the reduction of the rows that have a number; NaN if no row has one."""
    known_M = x_L[~np.isnan(x_L)]
    return float(reduce(known_M)) if known_M.size else np.nan


def cell_table(name: str, frame: pd.DataFrame, keys: Sequence[str], metrics: Sequence[str]) -> Table:
    """Return the table of a sweep: keys, metrics and `diverged`, one row per cell, sorted by keys.

    Args:
        name: of the table.
        frame: result rows as `committed.load_results` gives them; the same cell read twice counts once.
        keys: fields of Run, or single arguments written "staleness_args.span" (NaN for cells without it).
        metrics: words as this module explains; each becomes a column of that name.

    Raises:
        UserError: a key that is no field, a metric that was not logged, cells that agree in all keys.
    """
    for key in keys:
        if key.partition(".")[0] not in FIELDS:
            raise unknown("field of Run", key, FIELDS)
    need(frame, ["cell", "step", DIVERGED, *(key.partition(".")[0] for key in keys), *_logged(metrics)])
    rows = frame.drop_duplicates(["cell", "step"]).sort_values(["cell", "step"], ignore_index=True)
    cells = rows.drop_duplicates("cell").set_index("cell")
    found = pd.DataFrame({key: _key(cells, key) for key in keys}, index=cells.index)
    groups = dict(list(rows.groupby("cell")))
    for metric in metrics:
        found[metric] = [value_of(groups[cell], metric) for cell in cells.index]
    found[DIVERGED] = [int((groups[cell][DIVERGED] != 0).any()) for cell in cells.index]
    found = found.sort_values(list(keys))
    table = Table.of(name, found, _about(cells, keys))
    _refuse_clashes(table, cells.loc[found.index], keys)
    return table


def _logged(metrics: Sequence[str]) -> list[str]:
    """Return the columns from which the metrics are read."""
    found: list[str] = []
    for metric in metrics:
        word = metric.partition(" ")[0]
        if metric in OUTCOMES or word in REACHED:
            found += READS.get(word, (ACCURACY,))
        else:
            found.append(_parse(metric)[1])
    return found


def _parse(metric: str) -> tuple[str, str]:
    """Return ("min", "x") for "min x" and ("final", "x") for "x"; names of logged metrics have no spaces."""
    reduction, _, logged = metric.rpartition(" ")
    if reduction and reduction not in REDUCTIONS:
        raise unknown("reduction of a metric", reduction, REDUCTIONS)
    return reduction or "final", logged


def check_word(metric: str) -> None:
    """Raise UserError for a metric, as this module writes it, that no run can have."""
    word, _, threshold = metric.partition(" ")
    if metric in OUTCOMES:
        return
    if word in REACHED:
        _threshold(metric, threshold)
        return
    logged = _parse(metric)[1]
    if logged not in METRICS and not BY_DIFFICULTY.fullmatch(logged):
        raise unknown("outcome", metric, [*OUTCOMES, *METRICS])


def value_of(rows: pd.DataFrame, metric: str) -> float:
    """Return a metric, as this module writes it, of one cell's rows in the order of their steps."""
    if metric in OUTCOMES:
        return outcome(rows)[metric]
    word, _, threshold = metric.partition(" ")
    if word in REACHED:
        return reached(rows, _threshold(metric, threshold), REACHED[word])
    reduction, logged = _parse(metric)
    values_L = rows[logged].to_numpy(dtype=np.float64)
    return REDUCTIONS[reduction](np.nan_to_num(values_L, nan=0.0) if logged == ACCURACY else values_L)


def _threshold(metric: str, text: str) -> float:
    """Return the accuracy in a word; raise UserError if it is none."""
    try:
        threshold = float(text)
    except ValueError:
        threshold = np.nan
    if not 0 < threshold <= 1:
        raise UserError(
            f"'{metric}' names no accuracy; expected one above 0 and up to 1, as in steps_to 0.5."
        )
    return threshold


def _key(cells: pd.DataFrame, key: str) -> pd.Series:
    """Return the key's value per cell: numbers as numbers, no arguments as "default"."""
    field, _, argument = key.partition(".")
    if not argument:
        return cells[field].replace("", DEFAULT) if field.endswith("_args") else cells[field]
    values = cells[field].map(lambda text: taken_apart(text).get(argument))
    if values.isna().all():
        raise UserError(f"No cell of the sweep has '{argument}' in {field}; leave the key '{key}' out.")
    try:
        return pd.to_numeric(values)
    except ValueError:
        return values


def words(args: Arguments) -> str:
    """Return arguments as a key of a table has them."""
    return ",".join(f"{name}={value}" for name, value in args) or DEFAULT


def arms_of(names: Iterable[str], runs: Iterable[Run], keys: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return, by name, the row of a run in a table with these keys, except for its seed."""

    def said(run: Run, key: str) -> Any:
        field, _, argument = key.partition(".")
        value = getattr(run, field)
        if argument:
            return dict(value).get(argument)
        return words(value) if field.endswith("_args") else value

    each = ({key: said(run, key) for key in keys if key != "seed"} for run in runs)
    known = ({key: value for key, value in arm.items() if value is not None} for arm in each)
    return dict(zip(names, known, strict=True))


def taken_apart(text: str) -> dict[str, str]:
    """Return {"eps": "0.2", "weight": "token"} for "eps=0.2,weight=token", as the recorder writes it."""
    pairs = [piece.partition("=") for piece in text.split(",") if text]
    if not all(sign for _, sign, _ in pairs):
        raise UserError(f"The arguments '{text}' cannot be taken apart; use the whole field as a key.")
    return {argument: value for argument, _, value in pairs}


def _varied(cells: pd.DataFrame) -> list[str]:
    """Return the fields of Run in which the cells differ."""
    return [field for field in FIELDS if field in cells and cells[field].nunique(dropna=False) > 1]


def _about(cells: pd.DataFrame, keys: Sequence[str]) -> dict[str, Any]:
    """Return the number of cells, the fields that all share, and those that vary without being a key."""
    varied = _varied(cells)
    shared = {field: cells[field].iloc[0] for field in FIELDS if field in cells and field not in varied}
    about = {field: value.item() if hasattr(value, "item") else value for field, value in shared.items()}
    fields = {key.partition(".")[0] for key in keys}
    return about | {"cells": len(cells), "also_varied": [field for field in varied if field not in fields]}


def _refuse_clashes(table: Table, cells: pd.DataFrame, keys: Sequence[str]) -> None:
    """Raise UserError when two rows agree in all keys as a reader of the file sees them."""
    read = table.frame[list(keys)]
    clash = read.duplicated(keep=False).to_numpy()
    if not clash.any():
        return
    first = read[clash].iloc[0]
    same = (read.eq(first) | (read.isna() & first.isna())).all(axis=1).to_numpy()
    varied = ", ".join(_varied(cells[same]))
    raise UserError(
        f"{int(same.sum())} cells agree in {', '.join(keys)} ({', '.join(cells.index[same][:2])}, …) and "
        f"differ in {varied or 'nothing else'}; add a column that differs to the keys."
    )
