"""OAPL's path on a fixed mu: the entropy collapses and recovers when beta2 is small."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.palette import BLUE, GREEN, LONG, RULE, SHORT, SOLID, VERMILION, Dash
from analysis.tables.outcomes import need
from paper_figs.base import PAGE, figure

LOOKS: tuple[tuple[str, Dash], ...] = ((VERMILION, SOLID), (BLUE, LONG), (GREEN, SHORT))

CAPTION = (
    "Gradient flow of OAPL's loss, scaled by 1 / (2 beta2), on a fixed mu = (.3, .25, .2, .15, .1) with "
    "rewards 0, 0.2, 0.5, 0.8, 1 and beta1 = 1: tabular softmax, exact expectations, started at mu. "
    "(a) Entropy; dots: the smallest value along the path. (b) Value. With the published beta2 = 1e-3 "
    "the policy first becomes all but deterministic, and only then, past time 1000, does the pull to mu "
    "reopen it; at 0.1 and 1 it stays open."
)


@figure(
    "oapl-path",
    data="oapl-path",
    caption=CAPTION,
    supports=(
        "oapl-passes-through-collapse-at-small-beta2",
        "oapl-minimizer-is-the-tilt-iff-temperatures-agree",
    ),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the page-wide figure; columns beta2, time, entropy, value."""
    need(table, ["beta2", "time", "entropy", "value"])
    fig = Figure(figsize=(PAGE, 2.5))
    left, right = fig.subplots(1, 2)
    for (beta2, rows), (color, dash) in zip(table.groupby("beta2"), LOOKS, strict=False):
        rows = rows[rows["time"] > 0].sort_values("time")
        left.plot(rows["time"], rows["entropy"], color=color, linestyle=dash, label=f"β₂ = {beta2:g}")
        right.plot(rows["time"], rows["value"], color=color, linestyle=dash)
        lowest = rows.iloc[int(rows["entropy"].to_numpy().argmin())]
        left.plot([lowest["time"]], [lowest["entropy"]], "o", color=color, markersize=4)
        if lowest["entropy"] < 0.01:
            left.annotate(
                f"{lowest['entropy']:.0e}".replace("e-0", "e−"),
                (lowest["time"], lowest["entropy"]),
                (-6, 0),
                textcoords="offset points",
                ha="right",
                va="center",
                fontsize=7,
                color=color,
            )
    left.set_yscale("log")
    for ax in (left, right):
        ax.set_xscale("log")
        ax.set_xlabel("flow time")
    right.axhline(1.0, color=RULE, linewidth=0.8, linestyle=":")
    left.set_ylabel("entropy (nats)")
    right.set_ylabel("J")
    left.set_title("(a) entropy", loc="left")
    right.set_title("(b) value; dotted: the best action", loc="left")
    fig.legend(loc="outside upper center", ncols=3)
    return fig
