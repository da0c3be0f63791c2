"""Settings of arms chosen on pilot worlds, which no table has, and the gate that asks for wide grids."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

Grid: TypeAlias = Mapping[str, Sequence[float]]
PILOT = 5_000_000
"""First seed of pilot worlds; the runs of tables begin at 0 and 1,000,000."""
FLAT = 0.01
"""Gain toward the end of a grid below which a wider grid would change nothing."""


def tuned(score: Callable[..., float], grid: Grid, flat: float = FLAT) -> tuple[dict[str, float], bool]:
    """Return the setting with the highest score(**setting), and whether it lies at an end of its grid.

    A setting is at an end where the next one inward of the same knob is worse by more than `flat`: a wider
    grid might then have a better one. Knobs with one value have no end.
    """
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    found = [score(**point) for point in points]
    best = int(np.argmax(found))
    chosen, ends = points[best], False
    for name, values in grid.items():
        at = list(values).index(chosen[name])
        if len(values) > 1 and at in (0, len(values) - 1):
            inward = points.index({**chosen, name: values[1 if at == 0 else -2]})
            ends = ends or found[best] - found[inward] > flat
    return chosen, ends


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
