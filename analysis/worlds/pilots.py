"""Settings of arms chosen on pilot worlds, which no table has, and the gate that asks for wide grids."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from analysis.judging.replication import Seeds, columns
from envs.arrays import Floats

Grid: TypeAlias = Mapping[str, Sequence[float]]
PILOT = 5_000_000
"""First seed of pilot worlds; the runs of tables begin at 0 and 1,000,000."""
FLAT = 0.01
"""Gain toward the end of a grid below which a wider grid would change nothing."""


def tuned(score: Callable[..., float], grid: Grid, flat: float = FLAT) -> tuple[dict[str, float], bool]:
    """Return the setting with the highest score(**setting), and whether it lies at an end of its grid.

    A setting is at an end where the next one inward of the same knob is worse by more than `flat`: a wider
    grid might then have a better one. Neither knobs with one value nor the value 0 have an end.
    """
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    found = [score(**point) for point in points]
    best = int(np.argmax(found))
    chosen, ends = points[best], False
    for name, values in grid.items():
        at = list(values).index(chosen[name])
        if len(values) > 1 and at in (0, len(values) - 1):
            if at == 0 and values[0] == 0:
                continue  # nothing lies below a weight, a share or a chance of 0
            inward = points.index({**chosen, name: values[1 if at == 0 else -2]})
            ends = ends or found[best] - found[inward] > flat
    return chosen, ends


@dataclass(frozen=True, eq=False)
class TunedArms:
    """Arms of a table, each at its best setting on pilot worlds.

    arms: grid of each. learn: learn(seeds, arm, **setting), outcomes by column, [R] each. score: the outcome
    that is to be high on average over `pilots` pilot worlds.
    """

    arms: Mapping[str, Grid]
    learn: Callable[..., Mapping[str, Floats]]
    score: str
    pilots: int

    @cached_property
    def settings(self) -> dict[str, tuple[dict[str, float], bool]]:
        """Setting of each arm, and whether it lies at an end of its grid."""
        seeds = tuple(range(PILOT, PILOT + self.pilots))

        def scored(arm: str) -> Callable[..., float]:
            return lambda **knobs: float(np.mean(self.learn(seeds, arm, **knobs)[self.score]))

        return {arm: tuned(scored(arm), grid) for arm, grid in self.arms.items()}

    def rows(self, seeds: Seeds, **given: object) -> Iterator[pd.DataFrame]:
        """Yield the outcomes of each arm in each world, with a column `at end`; given: further columns."""
        for arm, (knobs, ends) in self.settings.items():
            outcomes = self.learn(seeds, arm, **knobs)
            yield columns(seeds, **given, arm=arm, **outcomes, **{"at end": int(ends)})


def inside(**where: Any) -> Callable[[pd.DataFrame], str]:
    """Return the gate that no setting of the rows asked for lies at an end of its grid, by column `at end`.

    where: values of columns, or collections of them, as `arm=("ppo", "bpo")`; without any, all rows count.
    """

    def gate(table: pd.DataFrame) -> str:
        rows = table["at end"] > 0
        for column, wanted in where.items():
            rows &= table[column].isin([wanted] if isinstance(wanted, str | int | float) else list(wanted))
        arms = sorted(set(map(str, table.loc[rows, "arm"])))
        return f"at an end of its grid: {', '.join(arms)}" if arms else ""

    return gate
