"""Engine mismatch and lag, alone and together: two settings, two heat maps and a repair."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.palette import INK
from analysis.tables.outcomes import need
from paper_figs.base import PAGE, figure

SIGMA, ESS, VALUE = "mismatch_args.sigma", "mean exact/ess_kish_sequence", "exact/value"
COLUMNS = ["recipe", "learning_rate", SIGMA, "lag", "seed", ESS, VALUE]
DARK = 0.55
"""Cells below this value are dark and get light text."""

CAPTION = (
    "Engine mismatch (logit noise of standard deviation sigma, fresh per batch) by lag, on a token tree "
    "with exact distributions; 200 steps of REINFORCE at learning rate 3, means over 8 seeds, one color "
    "scale from 0 to 1. (a) Limit of Kish's ESS / N without weights, mean over the run; left of the gap "
    "the control arm with learning rate 0 shows mismatch alone, which is larger because the policy stays "
    "uniform. (b) Exact value of the final policy, without weights: lag or mismatch alone does not cost "
    "as much as both together. (c) The same with sequence importance weights: every value lies above 0.94."
)


@figure(
    "mismatch-staleness",
    data="mismatch-staleness",
    caption=CAPTION,
    supports=("mismatch-and-lag-hurt-more-together", "sequence-weights-repair-mismatch-and-lag-together"),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the page-wide figure; columns recipe, learning rate, sigma, lag, seed, ESS and value."""
    need(table, COLUMNS)
    learns = table["learning_rate"] > 0
    plain = learns & (table["recipe"] == "reinforce")
    fig = Figure(figsize=(PAGE, 2.55))
    first, second, third = fig.subplots(1, 3, sharey=True)
    control = table[~learns & (table["lag"] == 0)].groupby(SIGMA)[ESS].mean()
    _heat(first, _grid(table[plain], ESS), control)
    _heat(second, _grid(table[plain], VALUE))
    _heat(third, _grid(table[learns & (table["recipe"] == "importance")], VALUE))
    first.set_ylabel("mismatch (sigma of the logits)")
    titles = ("(a) ESS / N", "(b) value, no weights", "(c) value, sequence weights")
    for ax, title in zip((first, second, third), titles, strict=True):
        ax.set_title(title, loc="left")
    bar = fig.colorbar(third.collections[0], ax=[first, second, third], fraction=0.03, pad=0.015)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2)
    return fig


def _grid(rows: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return means over seeds: a row per sigma, a column per lag."""
    return rows.pivot_table(index=SIGMA, columns="lag", values=value)


def _shown(value: float) -> str:
    """Return 0.57; below 0.01 one significant digit, .0004, as two decimals would make it zero."""
    return f"{value:.2f}" if value >= 0.01 or value <= 0 else f"{value:.1g}".lstrip("0")


def _heat(ax: Axes, grid: pd.DataFrame, control: pd.Series | None = None) -> None:
    """Draw one map with a number in every cell, and the control arm as a column of its own."""
    edge_L = np.arange(grid.shape[1] + 1) - 0.5
    edge_S = np.arange(grid.shape[0] + 1) - 0.5
    look: dict[str, Any] = {"vmin": 0.0, "vmax": 1.0, "cmap": "viridis", "edgecolors": "white"}
    ax.pcolormesh(edge_L, edge_S, grid.to_numpy(), linewidth=0.6, **look)
    places: list[float] = list(range(grid.shape[1]))
    labels = [str(lag) for lag in grid.columns]
    columns = dict(zip(places, grid.to_numpy().T, strict=True))
    if control is not None:
        ax.pcolormesh(np.array([-2.1, -0.8]), edge_S, control.to_numpy()[:, None], linewidth=0.6, **look)
        columns[-1.45] = control.to_numpy()
        places, labels = [-1.45, *places], ["rate 0", *labels]
    for x, value_S in columns.items():
        for y, value in enumerate(value_S):
            color = "white" if value < DARK else INK
            ax.text(x, y, _shown(value), ha="center", va="center", fontsize=7, color=color)
    ax.set_xticks(places, labels)
    ax.set_yticks(range(grid.shape[0]), [f"{sigma:g}" for sigma in grid.index])
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.grid(visible=False)
    ax.set_xlabel("lag (updates)")
