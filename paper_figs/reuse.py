"""Rollouts to an accuracy of 0.8: four updates on every batch, made in four ways, against one."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.palette import BLUE, ORANGE
from analysis.tables.outcomes import need
from paper_figs.base import COLUMN, figure
from paper_figs.strips import Row, strips

LEVEL = "rollouts_to 0.8"
NAMES = {
    ("grpo", "default"): "GRPO, 1 pass",
    ("sfpo", "alpha=1,fast=3"): "GRPO, 4 passes",
    ("sfpo", "alpha=0.8,fast=3"): "SFPO, 4 passes",
    ("r2vpo", "passes=4"): "R²VPO, 4 passes",
    ("remix", "passes=4"): "ReMix, 4 passes",
}
CAPTION = (
    "Sequences that the toy LLM generated for training before its accuracy was 0.8, by recipe and updates "
    "per batch, each at its own learning rate. Dots: seeds; mark and bar: median and its order-statistic 95% "
    "interval. At the right edge, behind the gap: seeds that never came there within 200 steps."
)


@figure(
    "reuse",
    data="reuse",
    caption=CAPTION,
    supports=("sfpo-saves-rollouts", "r2vpo-halves-the-rollouts", "remix-needs-a-third-of-the-rollouts"),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the column-wide figure; columns recipe, recipe_args, seed, rollouts_to 0.8."""
    need(table, ["recipe", "recipe_args", "seed", LEVEL])
    found = {key: rows[LEVEL] for key, rows in table.groupby(["recipe", "recipe_args"])}
    rows = {
        name: Row(found[key], ORANGE if "1 pass" in name else BLUE)
        for key, name in NAMES.items()
        if key in found
    }
    fig = Figure(figsize=(COLUMN, 0.6 + 0.28 * len(rows)))
    ax = fig.subplots()
    never = 1.15 * float(np.nanmax(table[LEVEL].to_numpy(dtype=float), initial=1.0))
    strips(ax, rows, "rollouts to accuracy 0.8", best=never)
    ax.set_xlim(0, 1.04 * never)
    return fig
