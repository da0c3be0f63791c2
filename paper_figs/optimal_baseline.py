"""Variance against the baseline: a parabola around b*, whose curvature is known."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.palette import INK, RULE
from analysis.tables.outcomes import need
from paper_figs.base import PAGE, figure
from paper_figs.bias_variance import LOOKS

COLUMNS = [
    "ratio", "b", "variance", "formula", "best", "least", "relative_bias", "value_mu", "value_pi"
]  # fmt: skip

CAPTION = (
    "One-sample gradient with signal R - b on one random tree of 256 responses (4 tokens from 4, drift "
    "0.5), enumerated. (a) Trace variance against b; dots: enumerated; lines: least variance + (b - b*)^2 "
    "(E|C|^2 - |E C|^2) with C = sum_t c_t S_t; big markers: b*. Vertical: the values of mu (dotted) and "
    "pi (dashed), neither of them the best baseline. (b) Relative bias of the mean gradient: constant "
    "where the baseline does not bias it, which fails for the geometric ratio."
)


@figure(
    "optimal-baseline",
    data="optimal-baseline",
    caption=CAPTION,
    supports=("optimal-baseline-excess-variance", "baseline-free-only-under-plain-ratios"),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the page-wide figure; columns as in the table optimal-baseline."""
    need(table, COLUMNS)
    fig = Figure(figsize=(PAGE, 2.6))
    left, right = fig.subplots(1, 2)
    handles = []
    for ratio, rows in table.groupby("ratio", sort=False):
        look, first = LOOKS[str(ratio)], rows.iloc[0]
        left.plot(rows["b"], rows["formula"], color=look.color, linestyle=look.dash)
        left.plot(rows["b"].iloc[::2], rows["variance"].iloc[::2], ".", color=look.color, markersize=3.5)
        left.plot([first["best"]], [first["least"]], look.marker, color=look.color, markersize=6, zorder=4)
        right.plot(rows["b"], rows["relative_bias"], color=look.color, linestyle=look.dash)
        handles.append(
            Line2D([], [], color=look.color, linestyle=look.dash, marker=look.marker, label=str(ratio))
        )
    for ax in (left, right):
        _values(ax, table)
        ax.set_xlabel("baseline b")
    left.set_ylabel("tr Cov g")
    left.set_ylim(bottom=0)
    right.set_ylabel("relative bias")
    left.set_title("(a) variance, b* marked", loc="left")
    right.set_title("(b) bias", loc="left")
    handles += [
        Line2D([], [], color=RULE, linestyle=":", label="J(μ)"),
        Line2D([], [], color=INK, linestyle="--", linewidth=0.8, label="J(π)"),
    ]
    fig.legend(handles=handles, loc="outside upper center", ncols=6, columnspacing=1.4)
    return fig


def _values(ax: Axes, table: pd.DataFrame) -> None:
    ax.axvline(float(table["value_mu"].iloc[0]), color=RULE, linestyle=":", linewidth=0.9)
    ax.axvline(float(table["value_pi"].iloc[0]), color=INK, linestyle="--", linewidth=0.8)
