"""Tail indices of weights against the number of weights used, on laws whose index is known."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.palette import BLUE, DOT, GREEN, INK, LONG, SOLID, VERMILION, Dash
from analysis.tables.outcomes import need
from paper_figs.base import PAGE, figure

LOOKS: dict[str, tuple[str, Dash]] = {
    "hill": (VERMILION, SOLID),
    "moment": (BLUE, LONG),
    "pickands": (GREEN, DOT),
}

CAPTION = (
    "Tail index of 5000 independent weights against k, the number of largest weights used (Pickands: 4k). "
    "Lines: median of 100 samples, bands: 5% to 95%, seed 0; black: the true index. Hill is right for the "
    "Pareto distribution at every k and reports a heavy tail for every other distribution too. The moment "
    "estimator and Pickands recover the exponential and the uniform; for the log-normal (sigma 1, index "
    "0) they read 0.2 to 0.5 at every k."
)


@figure(
    "tail-stability", data="tail-stability", caption=CAPTION, supports=("hill-finds-a-tail-in-every-law",)
)
def draw(table: pd.DataFrame) -> Figure:
    """Return one panel per law; columns law, estimator, truth, k, low, index, high."""
    need(table, ["law", "estimator", "truth", "k", "low", "index", "high"])
    laws = list(dict.fromkeys(table["law"]))
    fig = Figure(figsize=(PAGE, 2.3))
    panels = fig.subplots(1, len(laws), sharey=True, squeeze=False)[0]
    for ax, law in zip(panels, laws, strict=True):
        rows = table[table["law"] == law]
        for estimator, (color, dash) in LOOKS.items():
            part = rows[rows["estimator"] == estimator].sort_values("k")
            ax.fill_between(part["k"], part["low"], part["high"], color=color, alpha=0.15, linewidth=0)
            ax.plot(part["k"], part["index"], color=color, linestyle=dash)
        ax.axhline(rows["truth"].iloc[0], color=INK, linewidth=0.8)
        ax.set_xscale("log")
        ticks = [100, 500]
        ax.set_xticks(ticks, [str(tick) for tick in ticks])
        ax.set_xticks([], minor=True)
        ax.set_title(law, loc="left")
        ax.set_xlabel("k, largest weights used")
    panels[0].set_ylabel("tail index")
    handles = [
        *(Line2D([], [], color=c, linestyle=d, label=name.capitalize()) for name, (c, d) in LOOKS.items()),
        Line2D([], [], color=INK, linewidth=0.8, label="truth"),
    ]
    fig.legend(handles=handles, loc="outside upper center", ncols=4)
    return fig
