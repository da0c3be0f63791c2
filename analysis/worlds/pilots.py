"""Settings of arms, chosen on pilot worlds that no table has, and the gate that requires wide grids."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from analysis.experiment import Experiment, Gate
from analysis.judging.comparison import Outcome
from analysis.judging.comparisons import Arm as Arms
from analysis.judging.replication import Seeds, averaged, columns, of_seeds
from envs.arrays import Floats

Grid: TypeAlias = Mapping[str, Sequence[float]]
PILOT, OTHERS = 5_000_000, 9_000_000
"""First seed of pilot worlds, and of those of `Arm`; runs of tables begin at 0 and 1,000,000."""
FLAT = 0.01
"""Gain toward the end of a grid, or share of `Arm`'s loss, below which a wider grid would change nothing."""
Start: TypeAlias = Mapping[str, float] | Sequence[Mapping[str, float]]
"""Settings from which a search climbs, one or several; () tries all."""
Settings: TypeAlias = Mapping[str, Floats]
"""Name of a knob: its values [R]."""


def tuned(score: Callable[..., float], grid: Grid, **more: Any) -> tuple[dict[str, float], bool]:
    """Return the setting with the highest score(**setting), and whether it lies at an end of its grid."""
    found, ends = best(score, grid, **more)
    return found, bool(ends)


def best(
    score: Callable[..., float],
    grid: Grid,
    flat: float = FLAT,
    endless: Mapping[str, Sequence[float]] = MappingProxyType({}),
    start: Start = (),
    fine: bool = False,
) -> tuple[dict[str, float], list[str]]:
    """Return the setting with the highest score(**setting), and the knobs for which it is at a grid's end.

    It is at an end if the next value inward is worse by more than `flat`, as a wider grid might then have a
    better one. Knobs with one value, the value 0, and values in `endless` have no end, since nothing lies
    beyond. start: climb from there, or from each of several, knob by knob, until no step of one knob is
    better, for grids too large to try. fine: climb once more from the best setting, on the grid
    with smaller steps that `halved` makes.
    """
    scores: dict[tuple[float, ...], float] = {}

    def at(point: Mapping[str, float]) -> float:
        knobs = tuple(point[name] for name in grid)
        if knobs not in scores:
            scores[knobs] = score(**dict(zip(grid, knobs, strict=True)))
        return scores[knobs]

    def stepped(point: Mapping[str, float], name: str, by: int, grid: Grid) -> list[dict[str, float]]:
        i = list(grid[name]).index(point[name]) + by
        return [{**point, name: grid[name][i]}] if 0 <= i < len(grid[name]) else []

    def climbed(begin: Mapping[str, float], grid: Grid = grid) -> dict[str, float]:
        chosen, before = dict(begin), dict[str, float]()
        while chosen != before:
            before = chosen
            for name in grid:
                sides = [*stepped(chosen, name, -1, grid), *stepped(chosen, name, 1, grid)]
                chosen = max([chosen, *sides], key=at)
        return chosen

    every = (dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values()))
    tops = map(climbed, [start] if isinstance(start, Mapping) else start) if start else every
    chosen = max(tops, key=at)
    if fine:
        chosen = climbed(chosen, {name: halved(values) for name, values in grid.items()})
    ends = []
    for name, values in grid.items():
        if chosen[name] not in values:
            continue  # between two values
        down, up = stepped(chosen, name, -1, grid), stepped(chosen, name, 1, grid)
        if len(values) < 2 or (down and up) or chosen[name] in endless.get(name, ()):
            continue
        if not down and values[0] == 0:
            continue  # no weight, share or probability is below 0
        ends += [name] * (at(chosen) - at((down or up)[0]) > flat)
    return chosen, ends


def halved(values: Sequence[float]) -> tuple[float, ...]:
    """Return the values with more between those that are over a factor of 2.1 apart, at equal ratios.

    A step from 0 or below stays; between whole numbers lie whole numbers.
    """
    found: list[float] = []
    for low, high in itertools.pairwise(values):
        steps = math.ceil(math.log(high / low, 2.1)) if 0 < low < high else 1
        between = [low * (high / low) ** (i / steps) for i in range(1, steps)]
        whole = isinstance(low, int) and isinstance(high, int)
        found += [low, *dict.fromkeys(round(x) for x in between)] if whole else [low, *between]
    return (*found, values[-1])


@dataclass(frozen=True)
class Arm:
    """A learner that evaluates many settings of one world at once, with the grid of every knob.

    score: (seed, settings) -> outcomes [K, R], of which the first is a loss to minimize.
    """

    score: Callable[[int, Settings], Floats]
    grid: Grid

    def at(self, seed: int, setting: Mapping[str, float]) -> Floats:
        """Return the outcomes of one seed at one setting, [K]."""
        return self.score(seed, {name: np.array([value]) for name, value in setting.items()})[:, 0]

    def tuned(self, pilots: int, off: Mapping[str, float]) -> tuple[dict[str, float], list[str]]:
        """Return the same as `best`, for the log of the mean loss over pilot worlds.

        off: settings that switch a mechanism off, or beyond which no grid goes.
        """
        points = list(itertools.product(*self.grid.values()))
        settings = dict(zip(self.grid, np.array(points).T, strict=True))
        lost_R = np.mean([self.score(OTHERS + i, settings)[0] for i in range(pilots)], axis=0)
        gain = dict(zip(points, -np.log(np.nan_to_num(lost_R, nan=np.inf)), strict=True))
        endless = {name: (value,) for name, value in off.items()}
        return best(lambda **at: float(gain[tuple(at.values())]), self.grid, float(np.log1p(FLAT)), endless)


@dataclass(frozen=True, eq=False)
class TunedArms:
    """Arms of a table, each at its best setting on pilot worlds, in each of some cells.

    arms: grid of each. learn: learn(seeds, arm, **cell, **setting), outcomes by column, [R] each. score: the
    outcome that is to be high on average over `pilots` pilot worlds, low behind "-"; in braces a column.
    cells: further columns and their values.
    endless, starts, fine: as `best` takes them, starts by arm.
    """

    arms: Mapping[str, Grid]
    learn: Callable[..., Mapping[str, Any]]
    score: str
    pilots: int
    cells: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    endless: Mapping[str, Sequence[float]] = field(default_factory=dict)
    starts: Mapping[str, Start] = field(default_factory=dict)
    fine: bool = False

    @functools.cache  # noqa: B019 - one object a module
    def setting(self, arm: str, *cell: Any) -> tuple[dict[str, float], bool]:
        """Return an arm's setting in a cell, by its values, and whether it is at an end of its grid."""
        seeds, named = tuple(range(PILOT, PILOT + self.pilots)), dict(zip(self.cells, cell, strict=True))
        score, sign = self.score.format(**named), -1.0 if self.score[0] == "-" else 1.0
        return tuned(
            lambda **knobs: sign * float(np.mean(self.learn(seeds, arm, **named, **knobs)[score.strip("-")])),
            self.arms[arm],
            endless=self.endless,
            start=self.starts.get(arm, ()),
            fine=self.fine,
        )

    def rows(self, seeds: Seeds) -> Iterator[pd.DataFrame]:
        """Yield the outcomes of each arm in each cell and world, with a column `at end`."""
        for cell, arm in itertools.product(itertools.product(*self.cells.values()), self.arms):
            knobs, ends = self.setting(arm, *cell)
            named = dict(zip(self.cells, cell, strict=True))
            outcomes = self.learn(seeds, arm, **named, **knobs)
            yield columns(seeds, **named, arm=arm, **outcomes, **{"at end": int(ends)})

    def experiment(
        self,
        name: str,
        seeds: int,
        metrics: tuple[str, ...],
        about: Mapping[str, Any] | None = None,
        worlds: int = 1,
        continued: bool = False,
        **more: Any,
    ) -> Experiment:
        """Return the experiment with the table of `rows`; more: further arguments of `Experiment`.

        worlds, continued: a unit is the mean of the metrics over this many worlds, by `averaged`.
        """
        about = {"pilots": self.pilots, **(about or {})}
        rows = averaged(self.rows, worlds, metrics, continued=continued) if worlds > 1 else self.rows
        return Experiment(
            name,
            compute=of_seeds(name, rows, seeds, about),
            keys=("run", "seed", *self.cells, "arm"),
            metrics=(*metrics, "at end"),
            **more,
        )


def by_world(*names: str) -> Callable[[Callable[..., Any]], Callable[..., dict[str, Floats]]]:
    """Return the decorator that makes learn(seeds, arm, …), [R] each, of the numbers of one(seed, arm, …)."""

    def of_all(one: Callable[..., Any]) -> Callable[..., dict[str, Floats]]:
        @functools.wraps(one)
        def learn(seeds: Seeds, arm: str, **more: Any) -> dict[str, Floats]:
            found = np.array([one(int(seed), arm, **more) for seed in seeds], dtype=np.float64)
            return dict(zip(names, found.reshape(len(seeds), -1).T, strict=True))

        return learn

    return of_all


def inside(**where: Any) -> Callable[[pd.DataFrame], str]:
    """Return the gate that no setting of the selected rows lies at an end of its grid.

    Column `at end` says this, or `at_end` does. where: values of columns, or collections of them, as
    `arm=("ppo", "bpo")`; without any, all rows count.
    """

    def gate(table: pd.DataFrame) -> str:
        rows = table["at end"] > 0 if "at end" in table else table["at_end"].fillna("") != ""
        for column, wanted in where.items():
            rows &= table[column].isin([wanted] if isinstance(wanted, str | int | float) else list(wanted))
        name = "arm" if "arm" in table else next(iter(where))
        arms = sorted(set(map(str, table.loc[rows, name])))
        return f"at an end of its grid: {', '.join(arms)}" if arms else ""

    return gate


def ask(
    experiment: Experiment,
    name: str,
    statement: str,
    first: str | Arms | None = None,
    second: str | tuple[str, ...] | Arms | None = None,
    by: float = 0.0,
    outcome: Outcome = "accuracy",
    source: str = "",
    gates: Mapping[str, Gate] | None = None,
    **more: Any,
) -> None:
    """Declare that an arm's outcome is above each other arm's, with no setting at an end of its grid.

    first, second: names in column `arm`, or {column: values}; one arm alone, or none, as in `compare`.
    gates: in place of that on the ends of grids, in the cells that are asked, of tables that say where arms
    lie.
    """
    one, other = ({"arm": x} if isinstance(x, str | tuple) else x for x in (first, second))
    if gates is None and one and {"at end", "at_end"} & set(experiment.metrics):
        met = {column: [*_values(x), *_values((other or {}).get(column, ()))] for column, x in one.items()}
        gates = {"tuned": inside(**{**(more.get("over") or {}), **met})}
    experiment.claim(name, statement, source=source, gates=gates).compare(outcome, one, other, by=by, **more)


def _values(x: Any) -> tuple[Any, ...]:
    return (x,) if isinstance(x, str | int | float) else tuple(x)


def asks(experiment: Experiment, *rows: tuple[Any, ...], **shared: Any) -> None:
    """Declare a claim per row: arguments after the experiment in `ask`, and those in `shared`."""
    for row in rows:
        own = row[-1] if len(row) > 4 and isinstance(row[-1], Mapping) else {}
        ask(experiment, *(row[:-1] if own else row), **{**shared, **own})
