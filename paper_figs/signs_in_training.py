"""Entropy and accuracy at the end on old data, by what recipes do with signs and clips."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from analysis.palette import BLUE, VERMILION
from analysis.tables.outcomes import ACCURACY, need
from paper_figs.base import COLUMN, figure
from paper_figs.strips import Row, strips

ENTROPY = "val/entropy"
ROWS = {
    "GRPO": ("exact", 64, "grpo", "default"),
    "DAPO": ("exact", 64, "dapo", "default"),
    "BAPO": ("exact", 64, "bapo", "default"),
    "CISPO": ("exact", 64, "cispo", "default"),
    "DISPO": ("exact", 64, "dispo", "default"),
    "GRPO, replay": ("replay", 0, "grpo", "default"),
    "BAPO, replay": ("replay", 0, "bapo", "default"),
    "GRPO, partial": ("partial", 0, "grpo", "default"),
    "BAPO, partial": ("partial", 0, "bapo", "default"),
    "GRPO, fresh": ("exact", 0, "grpo", "default"),
    "max@4, fresh": ("exact", 0, "max_at_k", "k=4"),
    "GRPO, lag 16": ("exact", 16, "grpo", "default"),
    "max@4, lag 16": ("exact", 16, "max_at_k", "k=4"),
    "REINFORCE, offline": ("offline", 0, "reinforce", "default"),
    "importance, offline": ("offline", 0, "importance", "default"),
    "positives, offline": ("offline", 0, "topr", "baseline=0"),
    "TOPR 0.25, offline": ("offline", 0, "topr", "baseline=0.25"),
    "TOPR 0.5, offline": ("offline", 0, "topr", "baseline=0.5"),
    "TOPR 0.75, offline": ("offline", 0, "topr", "baseline=0.75"),
}
"""Kind of old data, lag, recipe and arguments by label; clips at lag 64 where nothing else is said."""
CAPTION = (
    "Where the toy LLM ends on sums of 6 digits after 300 steps, each arm at the learning rate chosen for it "
    "on other seeds: accuracy (left) and entropy per token on held-out prompts (right). First five rows: lag "
    "64. TOPR's number is its baseline under rewards of 0 and 1. Dots: seeds; mark and bar: median and its "
    "order-statistic 95% interval."
)


@figure(
    "signs-in-training",
    data="signs-in-training",
    caption=CAPTION,
    supports=("dispo-ends-above-cispo-at-lag-64", "max-at-k-training-keeps-entropy-on-policy"),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the column-wide figure; columns staleness, lag, recipe, recipe_args, accuracy, val/entropy."""
    keys = ["staleness", "lag", "recipe", "recipe_args"]
    need(table, [*keys, "seed", ACCURACY, ENTROPY])
    found = dict(list(table.groupby(keys)))
    fig = Figure(figsize=(COLUMN, 4.6))
    for ax, column, color, title in zip(
        fig.subplots(1, 2),
        (ACCURACY, ENTROPY),
        (BLUE, VERMILION),
        ("final accuracy", "entropy (nats)"),
        strict=True,
    ):
        strips(ax, {label: Row(found[key][column], color) for label, key in ROWS.items()}, title)
        if column == ENTROPY:
            ax.set_yticklabels([])
    return fig
