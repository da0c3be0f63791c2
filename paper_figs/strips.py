"""Rows of dots, one row per arm: seeds, and the median with its interval."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.judging.intervals import median_interval
from analysis.palette import BLUE, INK


@dataclass(frozen=True)
class Row:
    """What stands in a row: values of seeds, and its color."""

    values: pd.Series
    color: str = BLUE


def strips(ax: Axes, rows: Mapping[str, Row], x_label: str, best: float = np.inf) -> None:
    """Draw the rows from top to bottom, each a dot per seed, the median and its 95% interval.

    A value that is not finite stands at `best`, the place that the caller gives it on the axis.
    """
    for place, row in enumerate(rows.values()):
        x_N = row.values.to_numpy(dtype=float)
        x_N = np.where(np.isfinite(x_N), x_N, best)
        spread_N = np.linspace(-0.22, 0.22, x_N.size) if x_N.size > 1 else np.zeros(x_N.size)
        ax.plot(x_N, place + spread_N, ".", color=row.color, alpha=0.35, markersize=4, markeredgewidth=0)
        found = median_interval(x_N)
        reach = [[found.center - found.low], [found.high - found.center]]
        ax.errorbar([found.center], [place], xerr=reach, color=INK, marker="|", markersize=9, elinewidth=1.2)
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlabel(x_label)
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
