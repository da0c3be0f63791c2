"""Advantages of truncated responses: how far off the gradient is by window, with right and wrong critics."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.palette import BLUE, LONG, ORANGE, SOLID, Look
from analysis.tables.outcomes import need
from paper_figs.base import COLUMN, figure

LOOKS = {"egae": Look(BLUE, "o", SOLID), "gae": Look(ORANGE, "^", LONG)}
NAMES = {"egae": "EGAE", "gae": "GAE"}

CAPTION = (
    "Distance of the expected gradient from the true one, as a share of its length, when responses of "
    "six binary "
    "tokens are trained on in windows; lam 1, six random worlds and policies, all responses "
    "enumerated. Filled: "
    "exact critics; open: critics whose values are off by a standard deviation of 0.2. Dots: worlds; "
    "lines: means. "
    "A window of 6 waits for the end."
)


@figure(
    "critics",
    data="truncated-gae",
    caption=CAPTION,
    supports=("egae-cuts-less-than-gae", "errors-of-the-critic-eat-what-egae-gains"),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the figure, one column wide; columns as in the table truncated-gae."""
    need(table, ["window", "seed", "noise", "advantage", "error"])
    fig = Figure(figsize=(COLUMN, 3.6))
    panels = fig.subplots(2, 1, sharex=True, sharey=True)
    for ax, noise in zip(panels, np.unique(table["noise"]), strict=True):
        part = table[table["noise"] == noise]
        for name, look in LOOKS.items():
            own = part[part["advantage"] == name]
            mean = own.groupby("window")["error"].mean()
            shift = 0.08 if name == "gae" else -0.08
            face = look.color if not noise else "white"
            ax.plot(
                mean.index, mean, color=look.color, linestyle=look.dash, marker=look.marker, markersize=5,
                markerfacecolor=face, label=NAMES[name],
            )  # fmt: skip
            ax.plot(own["window"] + shift, own["error"], ".", color=look.color, markersize=2.5, alpha=0.6)
        what = "(a) exact critics" if not noise else f"(b) critics off by {noise:g}"
        ax.set_title(what, loc="left")
        ax.set_ylim(bottom=0)
    fig.supylabel("error of the gradient (share of its length)", fontsize="medium")
    panels[-1].set_xlabel("tokens per window")
    handles, labels = panels[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=2)
    return fig
