"""Final accuracy on old data by the level at which ratios are taken, for short and for long responses."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from analysis.collapse import ACCURACY, need
from analysis.palette import BLUE, SKY, VERMILION
from paper_figs.base import COLUMN, figure
from paper_figs.strips import Row, strips

LEVELS = {"grpo": "GRPO", "cispo": "CISPO", "minpro": "MinPRO", "ctpo": "CTPO", "gspo": "GSPO"}
OTHERS = {
    ("gmpo", "default"): "GMPO",
    ("holder", "default"): "Hölder, annealed",
    ("holder", "end=2,start=2"): "Hölder, p = 2",
    ("holder", "end=-2,start=-2"): "Hölder, p = -2",
    ("sapo", "default"): "SAPO",
    ("mhpo", "default"): "MHPO",
    ("mhpo", "lam_neg=1000"): "MHPO, open below",
    ("gbpo", "default"): "GBPO",
}
PLACES = {("digits=12", 16): SKY, ("digits=12", 64): BLUE, ("digits=48", 64): VERMILION}
"""Color by response length and lag."""
CAPTION = (
    "Final accuracy of the toy LLM at copying after 200 steps, each arm at the learning rate chosen for it on "
    "other seeds. (a) 12 tokens at lag 16 (light blue) and 64 (blue), 48 tokens at lag 64 (red); three rows per "
    "recipe: ratios by token (GRPO, CISPO), least prefix (MinPRO), prefix (CTPO), sequence (GSPO). (b) 12 "
    "tokens, lag 64. Dots: seeds; mark and bar: median and its order-statistic 95% interval."
)


@figure(
    "ratio-level",
    data="ratio-level",
    caption=CAPTION,
    supports=("minpro-ends-above-grpo-at-48-tokens", "minpro-gains-more-over-cispo-with-length"),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the column-wide figure; columns task_args, recipe, recipe_args, lag, seed, accuracy."""
    keys = ["task_args", "lag", "recipe", "recipe_args"]
    need(table, [*keys, "seed", ACCURACY])
    found = {key: rows[ACCURACY] for key, rows in table.groupby(keys)}
    fig = Figure(figsize=(COLUMN, 5.2))
    upper, lower = fig.subplots(2, 1, sharex=True, height_ratios=(15, 8))
    rows = {
        (label if lag == 16 else " " * (length == "digits=12") + " " * 2 * len(label)): Row(
            found[length, lag, recipe, "default"], color
        )
        for recipe, label in LEVELS.items()
        for (length, lag), color in PLACES.items()
    }
    strips(upper, rows, "")
    upper.set_title("(a) five levels", loc="left")
    others = {name: Row(found["digits=12", 64, *key]) for key, name in OTHERS.items()}
    strips(lower, others, "final accuracy")
    lower.set_title("(b) other shapes", loc="left")
    lower.set_xlim(-0.02, 1.02)
    return fig
