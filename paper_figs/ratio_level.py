"""Final accuracy on old data by the level at which ratios are taken, for short and for long responses."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from analysis.collapse import ACCURACY, need
from paper_figs.base import COLUMN, figure
from paper_figs.strips import Row, strips

LEVELS = {"grpo": "GRPO", "cispo": "CISPO", "minpro": "MinPRO", "ctpo": "CTPO", "gspo": "GSPO"}
OTHERS = {
    ("gmpo", "default"): "GMPO",
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
PLACES = (("digits=12", 16), ("digits=12", 64), ("digits=32", 64))
"""Response length and lag."""
CAPTION = (
    "Final accuracy of the toy LLM at copying T digits after 200 steps, each arm at the learning rate chosen "
    "for it on other seeds; titles say T and the lag. (a) to (c) Ratios by token (GRPO, CISPO), by token "
    "times the least one before it (MinPRO), by prefix (CTPO) and by sequence (GSPO). (d) Other shapes. "
    "Dots: seeds; mark and bar: median and its order-statistic 95% interval."
)


@figure(
    "ratio-level",
    data="ratio-level",
    caption=CAPTION,
    supports=("minpro-ends-above-grpo-at-32-tokens", "minpro-gains-more-over-cispo-with-length"),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the column-wide figure; columns task_args, recipe, recipe_args, lag, seed, accuracy."""
    keys = ["task_args", "lag", "recipe", "recipe_args"]
    need(table, [*keys, "seed", ACCURACY])
    found = {key: rows[ACCURACY] for key, rows in table.groupby(keys)}
    fig = Figure(figsize=(COLUMN, 4.2))
    axes = fig.subplot_mosaic([["a", "b", "c"], ["d", "d", "d"]], height_ratios=(5, 9))
    for panel, place in zip("abc", PLACES, strict=True):
        rows = {label: Row(found[*place, name, "default"]) for name, label in LEVELS.items()}
        strips(axes[panel], rows, "")
        axes[panel].set_title(f"({panel}) {place[0][7:]}, {place[1]}", loc="left")
        if panel != "a":
            axes[panel].set_yticklabels([])
    strips(axes["d"], {label: Row(found["digits=12", 64, *key]) for key, label in OTHERS.items()}, "")
    axes["d"].set_title("(d) 12, 64: other shapes", loc="left")
    axes["d"].set_xlabel("final accuracy")
    for ax in axes.values():
        ax.set_xlim(-0.03, 1.03)
    return fig
