"""Errors of two forecasts of the largest safe lag, seed by seed."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.palette import BLUE, VERMILION
from analysis.tables.outcomes import need
from paper_figs.base import COLUMN, figure
from paper_figs.strips import Row, strips

SAFE = "safe octaves"
FORECASTS = {
    "50 steps\nof a pilot": ("foretold by the pilot", BLUE),
    "the recipe's\nmedian": ("foretold by the recipe", VERMILION),
}
CAPTION = (
    "How many octaves (log2 of 1 + lag) a forecast of the largest safe lag is off, mean over six recipes, on "
    "a task and a width that nothing was fitted on. Blue: ridge regression on what is logged in the first 50 "
    "steps at lag 16; red: the recipe's median safe lag where it was fitted. Dots: seeds; mark and bar: "
    "median and its order-statistic 95% interval."
)


@figure(
    "safe-lag",
    data="safe-lag",
    caption=CAPTION,
    supports=(
        "a-pilot-foretells-the-safe-lag-within-an-octave",
        "a-pilot-foretells-the-safe-lag-better-than-the-recipe",
    ),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the column-wide figure; columns recipe, seed, safe octaves and both forecasts."""
    need(table, ["recipe", "seed", SAFE, *(column for column, _ in FORECASTS.values())])
    off = {
        name: Row((table[column] - table[SAFE]).abs().groupby(table["seed"]).mean(), color)
        for name, (column, color) in FORECASTS.items()
    }
    fig = Figure(figsize=(COLUMN, 1.4))
    ax = fig.subplots()
    strips(ax, off, "mean error (octaves of lag)")
    ax.set_xlim(left=0)
    return fig
