"""Recipe against lag: accuracy at the best learning rate of each, and how often it collapses at any."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.palette import INK
from analysis.tables.outcomes import ACCURACY, need
from paper_figs.base import PAGE, figure

CAPTION = (
    "Twelve recipes on data that are `lag` optimizer steps old, in the toy LLM after 600 steps, in the "
    "order of their tuned accuracy at the largest lag; no claim is judged on these seeds. Left: median "
    "final accuracy over tuning seeds at the best learning rate of this recipe and lag. Middle: the same "
    "at the rate that all recipes share. Right: share of runs, over all learning rates and seeds, that "
    "collapsed (docs/outcomes.md) or diverged."
)


@figure("phase-diagram", data="phase-diagram", caption=CAPTION)
def draw(table: pd.DataFrame) -> Figure:
    """Return the page-wide figure; columns recipe, lag, learning_rate, seed, accuracy, collapsed, diverged.

    The common rate is the largest.
    """
    need(table, ["recipe", "lag", "learning_rate", "seed", ACCURACY, "collapsed", "diverged"])
    common = float(table["learning_rate"].max())
    at_rate = table.groupby(["recipe", "lag", "learning_rate"])[ACCURACY].median()
    tuned = at_rate.groupby(["recipe", "lag"]).max().unstack()
    tuned = tuned.sort_values(tuned.columns[-1])
    shared = at_rate.xs(common, level="learning_rate").unstack().loc[tuned.index]
    lost = table.assign(lost=(table["collapsed"] > 0.5) | (table["diverged"] > 0.5))
    share = lost.groupby(["recipe", "lag"])["lost"].mean().unstack().loc[tuned.index]
    return maps(tuned, shared, share, common)


def maps(tuned: pd.DataFrame, shared: pd.DataFrame, share: pd.DataFrame, common: float) -> Figure:
    """Return recipe against lag three times: accuracy at its own rate, at the common one, share collapsed."""
    fig = Figure(figsize=(PAGE, 0.9 + 0.2 * len(tuned)))
    axes = fig.subplots(1, 3, sharey=True)
    _fields(axes[0], tuned, "final accuracy,\nits own learning rate", "viridis")
    _fields(axes[1], shared, f"final accuracy,\nlearning rate {common:g}", "viridis")
    _fields(axes[2], share, "share collapsed,\nall learning rates", "magma_r")
    axes[0].set_yticks(np.arange(len(tuned)) + 0.5, list(tuned.index))
    return fig


def _fields(ax: Axes, value: pd.DataFrame, title: str, colors: str) -> None:
    """Draw a field with its number for every recipe and lag, all on the scale from 0 to 1."""
    shown = value.to_numpy(dtype=float)

    dark = (lambda v: v > 0.5) if colors == "magma_r" else (lambda v: v < 0.5)
    ax.pcolormesh(shown, cmap=colors, vmin=0, vmax=1, edgecolors="white", linewidth=0.5)
    for (row, column), number in np.ndenumerate(shown):
        color = "white" if dark(number) else INK
        text = f"{number:.2f}".replace("0.", ".", 1)
        ax.text(column + 0.5, row + 0.5, text, ha="center", va="center", color=color, fontsize=7)
    ax.set_xticks(np.arange(shown.shape[1]) + 0.5, [str(lag) for lag in value.columns])
    ax.set_xlabel("lag (optimizer steps)")
    ax.set_title(title, fontsize=8)
    ax.grid(visible=False)
    ax.tick_params(length=0)
