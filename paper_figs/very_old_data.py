"""Final accuracy on data 256 steps old, beside that on fresh data, each recipe at its own learning rate."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.palette import BLUE, VERMILION
from analysis.tables.outcomes import ACCURACY, need
from paper_figs.base import COLUMN, figure
from paper_figs.strips import Row, strips
from paper_figs.words import NAMES

CAPTION = (
    "Final accuracy of the toy LLM (mean over its last three evaluations) after 400 steps, each recipe at "
    "the learning rate that was chosen for it at this lag on other seeds. Dots: seeds; mark and "
    "bar: median and its order-statistic 95% interval. Blue: fresh data; red: data 256 optimizer steps old."
)


@figure(
    "very-old-data",
    data="very-old-data",
    caption=CAPTION,
    supports=("m2po-at-lag-256-is-as-good-as-on-policy", "oapl-at-lag-256-is-as-good-as-on-policy"),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the column-wide figure; columns recipe, lag, seed, accuracy."""
    need(table, ["recipe", "lag", "seed", ACCURACY])
    found = {key: rows[ACCURACY] for key, rows in table.groupby(["recipe", "lag"])}
    order = sorted(found, key=lambda key: (key[1], -found[key].median()))
    rows = {
        f"{NAMES[str(recipe)]}, lag {lag}": Row(found[recipe, lag], VERMILION if lag else BLUE)
        for recipe, lag in order
    }
    fig = Figure(figsize=(COLUMN, 0.6 + 0.24 * len(rows)))
    ax = fig.subplots()
    strips(ax, rows, "final accuracy")
    ax.set_xlim(-0.02, 1.02)
    return fig
