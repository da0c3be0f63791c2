"""Share of tokens that M2PO and GRPO clip on old data, and the accuracy."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.palette import look
from analysis.tables.outcomes import ACCURACY, need
from paper_figs.base import COLUMN, figure
from paper_figs.panels import legend
from paper_figs.words import NAMES

SHARE = "mean actor/clip_share"
CAPTION = (
    "Share of tokens without a gradient for the clip, mean along the run, against final accuracy: M2PO and "
    "GRPO on fresh data (open) and on data 256 steps old (filled), each at its own learning rate. Marks are "
    "seeds of the toy LLM."
)


@figure(
    "very-old-data-clip-share",
    data="very-old-data",
    caption=CAPTION,
    supports=("m2po-clips-a-tenth-of-what-grpo-clips",),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the column-wide figure; columns recipe, lag, seed, accuracy, mean actor/clip_share."""
    need(table, ["recipe", "lag", "seed", ACCURACY, SHARE])
    fig = Figure(figsize=(COLUMN, 2.3))
    ax = fig.subplots()
    lines = []
    for (recipe, lag), rows in table[table["recipe"].isin(["grpo", "m2po"])].groupby(["recipe", "lag"]):
        style = look(str(recipe))
        lines += ax.plot(
            rows[SHARE],
            rows[ACCURACY],
            linestyle="",
            marker=style.marker,
            color=style.color,
            markerfacecolor=style.color if lag else "white",
            markersize=4,
            label=f"{NAMES[str(recipe)]}, lag {lag}",
        )
    ax.set_xlim(left=-0.01)
    ax.set_ylim(-0.02, 1.02)
    ax.set_xlabel("share of tokens clipped")
    ax.set_ylabel("final accuracy")
    legend(fig, lines, ncols=2)
    return fig
