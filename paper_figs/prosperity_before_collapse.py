"""Accuracy over training on old data: GRPO with its clip, without it, and M2PO."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.lag.prosperity_before_collapse import ARMS, CURVE, FAST, LAGS, SLOW
from analysis.palette import BLUE, GREEN, RULE, VERMILION
from analysis.tables.outcomes import need
from paper_figs.base import COLUMN, figure

LOOKS = {"grpo": ("GRPO", BLUE), "open": ("no clip", VERMILION), "m2po": ("M2PO", GREEN)}
CAPTION = (
    "Accuracy of the toy LLM while it learns from data 64 or 256 optimizer steps old, at two learning rates; "
    "lines: medians over seeds, bands: quartiles. Up to the step that is marked, all data are of the first "
    "weights."
)


@figure(
    "prosperity-before-collapse",
    data="prosperity-before-collapse",
    caption=CAPTION,
    supports=("unclipped-grpo-falls-after-its-prosperity",),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return four panels, lag by learning rate; columns: the table's keys and CURVE."""
    need(table, ["recipe", "recipe_args", "lag", "learning_rate", *CURVE])
    fig = Figure(figsize=(COLUMN, 1.1 * COLUMN))
    axes = fig.subplots(2, 2, sharex=True, sharey=True)
    step_L = np.array([int(name.partition("@")[2]) for name in CURVE])
    settings = [(lag, rate) for lag in LAGS for rate in (SLOW, FAST)]
    for ax, (lag, rate) in zip(axes.flat, settings, strict=True):
        here = table[(table["lag"] == lag) & np.isclose(table["learning_rate"], rate)]
        for name, (label, color) in LOOKS.items():
            recipe, arguments = ARMS[name]
            rows = here[(here["recipe"] == recipe) & (here["recipe_args"] == arguments)][list(CURVE)]
            low_L, middle_L, high_L = rows.quantile([0.25, 0.5, 0.75]).to_numpy()
            ax.fill_between(step_L, low_L, high_L, color=color, alpha=0.15, linewidth=0)
            ax.plot(step_L, middle_L, color=color, label=label)
        ax.axvline(lag, color=RULE, linewidth=0.7, linestyle=":")
        ax.set_title(f"lag {lag}, rate {rate:g}", fontsize=8)
    for ax in axes[1]:
        ax.set_xlabel("step")
    for ax in axes[:, 0]:
        ax.set_ylabel("accuracy")
        ax.set_ylim(-0.02, 1.02)
    axes[0, 0].legend(loc="lower right", fontsize=7)
    return fig
