"""A report card: one objective beside the committed numbers of all registered ones.

Parts: 1 promises, 2 exact, 3 the arena's rows, 4 cost, 5 nearest relatives. Committed numbers are the tables
card-exact, arena and card-cost; a card runs the code that made the first and the last, for its one objective.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.arena import arms, table
from analysis.cards.card_promises import Check, checks, refuse_broken, title_of
from analysis.experiments.cards import card_cost, card_exact
from analysis.tables.committed import COMMITTED, load_committed
from testbed.errors import UserError
from testbed.objectives import objective
from testbed.user_files import pin

if TYPE_CHECKING:
    from testbed.inspection.relatives import Relative

EXACT, COST = card_exact.NAME, card_cost.NAME
PART = {EXACT: 2, COST: 4}
ADDED = ("terms",)
"""Families that are terms of a loss and not objectives by themselves: no percentile counts them."""


@dataclass(frozen=True)
class Kind:
    """One number of a card: its table column and its meaning.

    better: 1 where more is better, -1 where less is, 0 for neither. axis: axis of the radar that its
    percentile enters; "" for none.
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
    return (*found, Kind(COST, "both", "time of loss and gradient, ppo_clip = 1", -1, "speed"))


@dataclass(frozen=True)
class Line:
    """A number and its rank among all registered objectives.

    low, high: its range if it depends on last digits, else None. percentile: share of the others that it
    beats, ties counted half, 0 to 100; None without others or without a better direction. typical: their
    median; among: how many.
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


@dataclass(frozen=True)
class Card:
    """All contents of a card. arena: rows of `table.summary`. axes: mean percentiles of the radar."""

    objective: str
    title: str
    formula: str
    quick: bool
    checks: tuple[Check, ...]
    lines: tuple[Line, ...]
    arena: tuple[dict[str, Any], ...]
    relatives: tuple[Relative, ...]
    axes: Mapping[str, float]
    left_out: tuple[str, ...]

    def row(self) -> dict[str, Any]:
        """Return the line as JSON-compatible values."""
        return asdict(self)


@cache
def committed(folder: Path = COMMITTED) -> dict[str, pd.DataFrame]:
    """Return the committed numbers of every available table, one row per objective."""
    try:
        known = load_committed(None, folder)
    except UserError:
        return {}
    return {name: known[name].frame.set_index("objective") for name in (EXACT, COST) if name in known}


def percentile(value: float, others: Iterable[float], better: int) -> float | None:
    """Return the percentage of other values that this value beats; a tie counts half.

    None if there are no others, the value is NaN, or neither direction is better.
    """
    other_N = np.asarray([x for x in others if not np.isnan(x)], dtype=np.float64)
    if not better or np.isnan(value) or not other_N.size:
        return None
    worse = np.sum(other_N < value) if better > 0 else np.sum(other_N > value)
    return float(100 * (worse + 0.5 * np.sum(other_N == value)) / other_N.size)


def _line(name: str, kind: Kind, row: Mapping[str, float]) -> Line:
    others = _others(name, kind.table, kind.column)
    typical = float(others.median()) if len(others) else None
    value = float(row[kind.column])
    ends = [row.get(f"{kind.column} {end}") for end in ("low", "high")]
    if kind.column == "gain" and not np.isnan(value):
        ends = [None, None]  # its range is over the last digits, if it depends on them
    return Line(
        PART[kind.table], kind.title, value, ends[0], ends[1], kind.better, kind.axis,
        percentile(value, others, kind.better), typical, len(others),
    )  # fmt: skip


def arena_rows(name: str) -> tuple[dict[str, Any], ...]:
    """Return the arena's rows of the arms whose recipe has this objective, see `analysis.arena.table`."""
    from testbed.recipes import recipe

    mine = [
        arm.name
        for arm in arms.known().values()
        if arm.name != arms.PLACEBO and recipe[arm.recipe].bind(**dict(arm.knob[0]))().objective == name
    ]
    frame = table.load()
    found = table.summary(frame[frame["arm"].isin([*mine, "grpo"])])
    columns = ["task", "lag", "arm", "seeds", "rate", "knob", "final", "gain", "gain_low", "gain_high"]
    return tuple(table.records(found.loc[found["arm"].isin(mine), columns]))


def _others(name: str, table: str, column: str) -> pd.Series:
    """Return a committed column of every other objective that counts and has a number."""
    known = committed().get(table, pd.DataFrame()).drop(index=name, errors="ignore")
    others = known.get(column, pd.Series(dtype=float))
    return others[[_counts(str(other)) for other in others.index]].dropna()


@cache
def _counts(name: str) -> bool:
    return name in objective and objective[name].family not in ADDED


def axes_of(lines: Iterable[Line]) -> dict[str, float]:
    """Return the mean percentile of every axis. There is deliberately no overall score."""
    found: dict[str, list[float]] = {}
    for line in lines:
        if line.axis and line.percentile is not None:
            found.setdefault(line.axis, []).append(line.percentile)
    return {axis: float(np.mean(each)) for axis, each in found.items()}


def make_card(name: str, *, quick: bool, said: Callable[[str], None]) -> Card:
    """Return the card of an objective: a registered name, or path/to/file.py:function.

    quick: without relatives. said: called with each step.

    Raises UserError, with file and line, if the objective cannot be called.
    """
    pinned = pin(name)
    refuse_broken(pinned)
    said("1 promises: the contract tests")
    found, sound = checks(pinned)
    numbers: dict[str, Mapping[str, float]] = {}
    left_out: list[str] = []
    relatives: tuple[Relative, ...] = ()
    arena = arena_rows(name)
    if not arena:
        left_out.append(
            f"part 3: no recipe of the arena has it; testbed arena add {name} --knob NAME=VALUE,VALUE,… "
            "trains one"
        )
    if sound:
        said(
            f"2 exact: gradients on {card_exact.TREES} trees at {len(card_exact.DRIFTS)} drifts, two bandits"
        )
        numbers[EXACT] = _exact(pinned, left_out)
        said("4 cost: stopwatch against ppo_clip")
        numbers[COST] = card_cost.cost_row(pinned)
        if not quick:
            said("5 relatives: effective weights of all registered objectives")
            from testbed.inspection.relatives import nearest

            relatives = tuple(nearest(pinned, [each for each in objective if _counts(each)]))
    else:
        left_out.append("parts 2, 4 and 5 need stacked batches, which this objective does not take (part 1)")
    lines = tuple(
        _line(name, kind, numbers[kind.table])
        for kind in kinds()
        if kind.column in numbers.get(kind.table, {})
    )
    entry = objective[pinned]
    return Card(
        name, title_of(name), entry.formula, quick, found, lines, arena, relatives, axes_of(lines),
        tuple(left_out),
    )  # fmt: skip


def _exact(name: str, left_out: list[str]) -> Mapping[str, float]:
    try:
        return card_exact.exact_row(name)
    except UserError as error:
        left_out.append(f"part 2: {error}")
        return {}
