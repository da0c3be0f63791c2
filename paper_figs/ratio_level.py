"""Final accuracy on old data by the level at which ratios are taken, for short and for long responses."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from analysis.tables.outcomes import ACCURACY, need
from paper_figs.base import COLUMN, figure
from paper_figs.strips import Row, strips

NAMES = {
    ("grpo", "default"): "GRPO",
    ("cispo", "default"): "CISPO",
    ("minpro", "default"): "MinPRO",
    ("ctpo", "default"): "CTPO",
    ("gspo", "default"): "GSPO",
    ("holder", "default"): "Hölder, annealed",
    ("holder", "end=2,start=2"): "Hölder, p = 2",
    ("holder", "end=0,start=0"): "Hölder, p = 0",
    ("holder", "end=-2,start=-2"): "Hölder, p = -2",
    ("sapo", "default"): "SAPO",
    ("mhpo", "default"): "MHPO",
    ("mhpo", "lam_pos=1000"): "MHPO, open above",
    ("mhpo", "lam_neg=1000"): "MHPO, open below",
    ("gbpo", "default"): "GBPO",
}
PLACES = {
    "(a) 32 tokens, lag 64": ("digits=32", 64),
    "(b) 12 tokens, lag 64": ("digits=12", 64),
    "(c) 12 tokens, lag 16": ("digits=12", 16),
}
CAPTION = (
    "Final accuracy of the toy LLM at copying after 200 steps, each arm at the learning rate chosen for it "
    "on other seeds. Ratios are taken by token (GRPO, CISPO, SAPO, MHPO, GBPO), by token times the least one "
    "before it (MinPRO), by prefix (CTPO) and by sequence (GSPO, Hölder). Dots: seeds; mark and bar: median "
    "and its order-statistic 95% interval."
)


@figure(
    "ratio-level",
    data="ratio-level",
    caption=CAPTION,
    supports=("minpro-ends-above-grpo-at-32-tokens", "minpro-gains-more-over-cispo-with-length"),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the column-wide figure; columns task_args, recipe, recipe_args, lag, seed, accuracy."""
    need(table, ["task_args", "lag", "recipe", "recipe_args", "seed", ACCURACY])
    found = {
        title: dict(
            list(
                table[(table["task_args"] == task) & (table["lag"] == lag)].groupby(["recipe", "recipe_args"])
            )
        )
        for title, (task, lag) in PLACES.items()
    }
    fig = Figure(figsize=(COLUMN, 6.0))
    panels = fig.subplots(3, 1, sharex=True, height_ratios=[len(arms) for arms in found.values()])
    for ax, (title, arms) in zip(panels, found.items(), strict=True):
        rows = {name: Row(arms[key][ACCURACY]) for key, name in NAMES.items() if key in arms}
        strips(ax, rows, "")
        ax.set_title(title, loc="left")
    panels[-1].set_xlabel("final accuracy")
    panels[-1].set_xlim(-0.02, 1.02)
    return fig
