"""The exact ESS of a drifting token chain against length and lag, and the lognormal guess beside it."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.palette import BLUE, INK, LONG, RULE, SOLID, VERMILION, Dash, lag_colors
from analysis.tables.outcomes import need
from paper_figs.base import PAGE, figure
from paper_figs.panels import legend, mark_cut

LENGTH = 64
"""Length at which lag is varied."""
LOOKS: dict[str, tuple[str, Dash, str]] = {
    "coherent": (VERMILION, SOLID, "o"),
    "random walk": (BLUE, LONG, "s"),
}

CAPTION = (
    "Limit of Kish's ESS / N for sequence ratios of a chain of four tokens with a policy that drifts away "
    "from mu; exact by matrix products. (a) Against length, for coherent drift by the given number of "
    "updates; solid: exact; dashed: exp(-Var ln w), the value for a lognormal w. (b) -ln(ESS / N) at "
    "length 64 against lag, for updates along one direction and for a random walk (mean over all walks); "
    "gray: slopes 2 and 1. (c) Var ln w as a multiple of -ln(ESS / N), coherent drift, every length: the "
    "lognormal approximation is exact at 1."
)


@figure(
    "ess-theory",
    data="ess-theory",
    caption=CAPTION,
    supports=("ess-cost-is-quadratic-only-in-coherent-lag", "sequence-second-moment-is-a-matrix-product"),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the page-wide figure; columns drift, lag, length, cost, variance."""
    need(table, ["drift", "lag", "length", "cost", "variance"])
    coherent = table[table["drift"] == "coherent"]
    fig = Figure(figsize=(PAGE, 2.9))
    first, second, third = fig.subplots(1, 3)
    colors = lag_colors(sorted(set(coherent["lag"])))
    _against_length(first, coherent, colors)
    _against_lag(second, table[table["length"] == LENGTH])
    longest = int(coherent["length"].max())
    for length in sorted({int(x) for x in coherent["length"]}):
        rows = coherent[coherent["length"] == length]
        third.plot(rows["lag"], rows["variance"] / rows["cost"], color=RULE, linewidth=0.6, zorder=1)
        third.scatter(
            rows["lag"], rows["variance"] / rows["cost"], s=8, c=[colors[lag] for lag in rows["lag"]]
        )
        if length == longest:
            third.annotate(
                f"length {length}",
                (rows["lag"].iloc[-1], (rows["variance"] / rows["cost"]).iloc[-1]),
                (-5, 0),
                textcoords="offset points",
                ha="right",
                va="center",
                fontsize=7,
            )
    third.axhline(1.0, color=INK, linewidth=0.8)
    third.set_xscale("log", base=2)
    third.set_xlabel("lag")
    third.set_ylabel("Var ln w / −ln(ESS/N)")
    third.set_title("(c) lognormal", loc="left")
    mark_cut(third)
    handles = [Line2D([], [], color=color, label=f"lag {lag}") for lag, color in colors.items()]
    handles += [
        Line2D([], [], color=INK, label="exact"),
        Line2D([], [], color=INK, linestyle=LONG, linewidth=0.8, label="lognormal guess"),
        Line2D([], [], color=RULE, linewidth=0.6, label="(b) slopes 2, 1; (c) one length"),
    ]
    legend(fig, handles, ncols=5, columnspacing=1.2)
    return fig


def _against_length(ax: Axes, coherent: pd.DataFrame, colors: dict[int, str]) -> None:
    for lag, color in colors.items():
        rows = coherent[coherent["lag"] == lag]
        ax.plot(rows["length"], np.exp(-rows["cost"]), color=color)
        ax.plot(rows["length"], np.exp(-rows["variance"]), color=color, linestyle=LONG, linewidth=0.8)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_ylim(1e-8, 2)
    ax.set_xlabel("length (tokens)")
    ax.set_ylabel("ESS / N")
    ax.set_title("(a) length", loc="left")


def _against_lag(ax: Axes, rows: pd.DataFrame) -> None:
    for drift, (color, dash, marker) in LOOKS.items():
        part = rows[rows["drift"] == drift].sort_values("lag")
        ax.plot(part["lag"], part["cost"], color=color, linestyle=dash, marker=marker, markersize=3.5)
        lag, slope = part["lag"].to_numpy(), 2 if drift == "coherent" else 1
        guide = part["cost"].to_numpy()[0] * (lag / lag[0]) ** slope
        ax.plot(lag, guide, color=RULE, linewidth=0.6, zorder=1)
        ax.annotate(
            f"{drift}\nslope {slope}",
            (lag[-3], part["cost"].to_numpy()[-3]),
            (-4, 4) if slope == 2 else (12, -12),
            textcoords="offset points",
            ha="right" if slope == 2 else "center",
            va="bottom" if slope == 2 else "top",
            fontsize=7,
            color=color,
        )
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xlabel("lag (updates)")
    ax.set_ylabel("−ln(ESS / N)")
    ax.set_title(f"(b) lag, {LENGTH} tokens", loc="left")
