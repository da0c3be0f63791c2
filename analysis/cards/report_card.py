"""A report card: one objective beside the committed numbers of all registered ones.

Parts: 1 promises, 2 exact, 3 training, 4 cost, 5 nearest relatives. Committed numbers are the tables
card-exact, card-training and card-cost; a card runs the code that made them, for its one objective.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd

from analysis.cards.card_promises import Check, checks, refuse_broken, title_of
from analysis.cards.card_rows import SHOWN, TUNED, side, training_rows
from analysis.experiments.cards import card_cost, card_exact, card_training
from analysis.tables.committed import COMMITTED, load_committed
from testbed.errors import UserError

if TYPE_CHECKING:
    from testbed.config.run import Run
    from testbed.inspection.relatives import Relative

Train: TypeAlias = "Callable[[tuple[Run, ...]], pd.DataFrame]"
EXACT, TRAINING, COST = card_exact.NAME, card_training.NAME, card_cost.NAME
PART = {EXACT: 2, TRAINING: 3, COST: 4}
AXES = {f"lag {lag}": "stale" for lag in card_training.LAGS}
"""Arms of training that share an axis of the radar; another one is an axis by itself."""
ADDED = ("terms",)
"""Families that are added to a loss and no objective by themselves: nobody's percentile counts them."""


@dataclass(frozen=True)
class Kind:
    """One number of a card: column of a table, and what it is.

    better: 1 where more is better, -1 where less is, 0 for neither. axis: that of the radar which its
    percentile goes into; "" for none.
    """

    table: str
    column: str
    title: str
    better: int
    axis: str = ""


def kinds() -> tuple[Kind, ...]:
    """Return every number of a card, in the order of its lines."""
    found = [
        Kind(EXACT, f"{fact} {drift:g}", f"{title} at drift {drift:g}", better, axis)
        for fact, title, better, axis in (
            ("bias", "bias of the direction", -1, "direction"),
            ("noise", "noise", -1, "noise"),
            ("ess", "effective sample size", 1, "sample size"),
            ("concentration", "gradient in the top tenth", -1, "spread"),
        )
        for drift in card_exact.DRIFTS
    ]
    found += [
        Kind(EXACT, f"bias_{part} 0.5", f"bias by {part} at drift 0.5", 0)
        for part in ("state", "suffix", "clipping")
    ]
    found += [
        Kind(EXACT, "gain", "gain on frozen data", 1, "frozen data"),
        Kind(EXACT, "settled", "settled there", 0),
    ]
    found += [Kind(TRAINING, f"accuracy {arm}", f"accuracy, {arm}", 1, AXES.get(arm, arm)) for arm in SHOWN]
    found += [
        Kind(TRAINING, f"accuracy {TUNED}", f"accuracy, {TUNED}", 1),
        Kind(TRAINING, "safe lag", "largest safe lag", 1),
        Kind(TRAINING, "steps on-policy", "steps to accuracy .5, on-policy", -1),
        Kind(TRAINING, "collapsed", "collapsed, share of all runs", -1),
    ]
    return (*found, Kind(COST, "both", "time of loss and gradient, ppo_clip = 1", -1, "speed"))


@dataclass(frozen=True)
class Line:
    """A number with its place among all registered objectives.

    low, high: its interval, None where it is exact. percentile: share of the others that it is better than,
    ties by half, 0 to 100; None without others or a better end. typical: their median; among: how many.
    side: "above" or "below" that median where seeds decide it, see card_rows.side, else "open"; "" where
    nothing is asked of seeds.
    """

    part: int
    title: str
    value: float
    low: float | None
    high: float | None
    better: int
    axis: str
    percentile: float | None
    typical: float | None
    among: int
    side: str = ""


@dataclass(frozen=True)
class Card:
    """Everything that a card says; `axes`: mean percentile by axis of the radar."""

    objective: str
    title: str
    formula: str
    quick: bool
    checks: tuple[Check, ...]
    lines: tuple[Line, ...]
    relatives: tuple[Relative, ...]
    axes: Mapping[str, float]
    left_out: tuple[str, ...]

    def row(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return asdict(self)


@cache
def committed(folder: Path = COMMITTED) -> dict[str, pd.DataFrame]:
    """Return the committed numbers of every table that is there, a row per objective.

    Training has the median over seeds and its ends, see `training_rows`.
    """
    try:
        known = load_committed(None, folder)
    except UserError:
        return {}
    found = {name: known[name].frame.set_index("objective") for name in (EXACT, COST) if name in known}
    if TRAINING in known:
        found[TRAINING] = training_rows(known[TRAINING].frame)
    return found


def percentile(value: float, others: Iterable[float], better: int) -> float | None:
    """Return the share of the others that the value is better than, ties by half, in percent.

    None where there are no others, the value is NaN, or neither end is the better one.
    """
    other_N = np.asarray([x for x in others if not np.isnan(x)], dtype=np.float64)
    if not better or np.isnan(value) or not other_N.size:
        return None
    worse = np.sum(other_N < value) if better > 0 else np.sum(other_N > value)
    return float(100 * (worse + 0.5 * np.sum(other_N == value)) / other_N.size)


def lines_of(
    name: str, numbers: Mapping[str, Mapping[str, float]], cells: pd.DataFrame | None = None
) -> tuple[Line, ...]:
    """Return the lines of a card; numbers: by table, then by column; cells: its runs of card-training."""
    return tuple(
        _line(name, kind, numbers[kind.table], cells)
        for kind in kinds()
        if kind.column in numbers.get(kind.table, {})
    )


def _line(name: str, kind: Kind, row: Mapping[str, float], cells: pd.DataFrame | None) -> Line:
    others = _others(name, kind.table, kind.column)
    typical = float(others.median()) if len(others) else None
    value = float(row[kind.column])
    ends = [row.get(f"{kind.column} {end}") for end in ("low", "high")]
    if kind.column == "gain" and not np.isnan(value):
        ends = [None, None]  # its range is that of the last digits, where it hangs on them
    found = ""
    if cells is not None and typical is not None and kind.column.removeprefix("accuracy ") in SHOWN:
        found = side(_accuracy(cells, kind.column.removeprefix("accuracy ")), typical) or "open"
    return Line(
        PART[kind.table], kind.title, value, ends[0], ends[1], kind.better, kind.axis,
        percentile(value, others, kind.better), typical, len(others), found,
    )  # fmt: skip


def _others(name: str, table: str, column: str) -> pd.Series:
    """Return a committed column of every other objective that counts and has a number."""
    known = committed().get(table, pd.DataFrame()).drop(index=name, errors="ignore")
    others = known.get(column, pd.Series(dtype=float))
    return others[[_counts(str(other)) for other in others.index]].dropna()


def _accuracy(cells: pd.DataFrame, arm: str) -> pd.Series:
    return cells[cells["arm"] == arm].set_index("seed")["accuracy"]


def open_arms(name: str, cells: pd.DataFrame) -> list[str]:
    """Return the arms in which the seeds leave open on which side of the others' median an objective lies.

    The rates that a tuned objective may choose go with the lag at which it does.
    """
    known = {arm: _others(name, TRAINING, f"accuracy {arm}") for arm in SHOWN if arm in set(cells["arm"])}
    left = [
        arm
        for arm, others in known.items()
        if others.empty or not side(_accuracy(cells, arm), others.median())
    ]
    rates = [arm for arm in card_training.ARMS if arm not in SHOWN]
    return left + (rates if f"lag {card_training.TUNED_AT}" in left else [])


@cache
def _counts(name: str) -> bool:
    from testbed.objectives import objective

    return name in objective and objective[name].family not in ADDED


def axes_of(lines: Iterable[Line]) -> dict[str, float]:
    """Return the mean percentile of every axis; there is no sum of them."""
    found: dict[str, list[float]] = {}
    for line in lines:
        if line.axis and line.percentile is not None:
            found.setdefault(line.axis, []).append(line.percentile)
    return {axis: float(np.mean(each)) for axis, each in found.items()}


def make_card(name: str, *, quick: bool, train: Train | None, said: Callable[[str], None]) -> Card:
    """Return the card of an objective: a registered name, or path/to/file.py:function.

    quick: without training and relatives. train: runs cells of card-training and returns all that the
    objective has, for one whose cells are not committed. said: told what is being done.

    Raises UserError, with file and line, where the objective cannot be called at all.
    """
    from testbed.objectives import objective
    from testbed.user_files import pin

    pinned = pin(name)
    refuse_broken(pinned)
    said("1 promises: the contract tests")
    found, sound = checks(pinned)
    numbers: dict[str, Mapping[str, float]] = {}
    left_out: list[str] = []
    relatives: tuple[Relative, ...] = ()
    cells: pd.DataFrame | None = None
    if sound:
        said(
            f"2 exact: gradients on {card_exact.TREES} trees at {len(card_exact.DRIFTS)} drifts, two bandits"
        )
        numbers[EXACT] = _exact(pinned, left_out)
        said("4 cost: stopwatch against ppo_clip")
        numbers[COST] = card_cost.cost_row(pinned)
        if not quick:
            cells = trained(name, pinned, train)
            if cells is None:
                left_out.append("part 3: training was not asked for")
            else:
                numbers[TRAINING] = {str(key): float(x) for key, x in training_rows(cells).iloc[0].items()}
            said("5 relatives: effective weights of all registered objectives")
            relatives = _relatives(pinned)
    else:
        left_out.append("parts 2 to 5: they stack batches, which this objective does not take yet (part 1)")
    lines = lines_of(name, numbers, cells)
    entry = objective[pinned]
    return Card(
        name, title_of(name), entry.formula, quick, found, lines, relatives, axes_of(lines), tuple(left_out)
    )


def _exact(name: str, left_out: list[str]) -> Mapping[str, float]:
    try:
        return card_exact.exact_row(name)
    except UserError as error:
        left_out.append(f"part 2: {error}")
        return {}


def trained(name: str, pinned: str, train: Train | None) -> pd.DataFrame | None:
    """Return the runs of an objective: the committed ones, or those of `train`, by blocks of seeds.

    The second block has the arms that the first leaves open, see `open_arms`.
    """
    known = load_committed([TRAINING])[TRAINING].frame if TRAINING in committed() else pd.DataFrame()
    if len(known) and (mine := known[known["recipe"] == name]).size:
        return mine
    if train is None:
        return None
    first, second = card_training.BLOCKS
    arms = card_training.arms_of(pinned)
    cells = train(_cells(arms, arms, range(first)))
    if left := open_arms(name, cells):
        cells = train(_cells(arms, left, range(first, first + second)))
    return cells


def _cells(arms: Mapping[str, Run], names: Iterable[str], seeds: range) -> tuple[Run, ...]:
    return tuple(replace(arms[arm], seed=seed) for arm in names for seed in seeds)


def _relatives(name: str) -> tuple[Relative, ...]:
    from testbed.inspection.relatives import nearest
    from testbed.objectives import objective

    return tuple(nearest(name, [each for each in objective if _counts(each)]))
