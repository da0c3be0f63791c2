"""Throughput against staleness of simulated pipelines, and the lag histograms of one of them."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from analysis.palette import (
    BLUE,
    DASH_DOT,
    DOT,
    GREEN,
    INK,
    LONG,
    ORANGE,
    PINK,
    RULE,
    SHORT,
    SOLID,
    VERMILION,
    Dash,
)
from analysis.tables.outcomes import need
from paper_figs.base import COLUMN, PAGE, figure
from paper_figs.panels import legend, mark_switch

FAMILIES: dict[str, tuple[str, str, Dash]] = {
    "synchronous": (INK, "*", SOLID),
    "periodic": (GREEN, "s", SHORT),
    "capacity": (BLUE, "o", SOLID),
    "threshold": (PINK, "D", DASH_DOT),
    "drop-oldest": (ORANGE, "^", LONG),
    "in flight": (VERMILION, "v", DOT),
}
"""Color, marker and line of each family of pipelines, in the order of the legend."""
LABELS = {
    "capacity": "capacity η (AReaL)",
    "threshold": "threshold s (verl)",
    "drop-oldest": "drop-oldest, queue q",
    "in flight": "the same, in flight",
    "periodic": "periodic asynchrony",
}

SIZES = {"synchronous": (9, 2), "periodic": (6, 2), "drop-oldest": (7, 2), "threshold": (5.5, 2)}
"""Size and layer of the markers of families that others coincide with."""

MARKED = {
    ("capacity", "η=1"): (5, -7),
    ("capacity", "η=2"): (5, -7),
    ("threshold", "s=0.5"): (-14, 6),
    ("drop-oldest", "q=1"): (6, -4),
    ("in flight", "q=1"): (-19, 1),
}
"""Points that carry their setting, and where it stands, points from the marker."""

CAPTION = (
    "Throughput against staleness on the same 32 accelerators, by family of pipelines and at the best of 13 "
    "splits between generator and trainer (colocated: all for both). x: mean lag of trained tokens, updates, "
    "linear up to 1 and logarithmic beyond; y: trained samples per second relative to synchronous training. "
    "Left: lengths lognormal with σ = 0.3; right: σ = 1.0, where stragglers cost more. Simulated, 4 "
    "replications of 60 batches of 256; the 95% t intervals of both means are smaller than the markers."
)


@figure(
    "pipeline-frontier",
    data="pipeline-frontier",
    caption=CAPTION,
    supports=("pipelining-alone-gains-nothing",),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the page-wide figure; columns family, setting, sigma, lag_token, speed."""
    need(table, ["family", "setting", "sigma", "lag_token", "speed"])
    sigmas = sorted(set(table["sigma"]))
    fig = Figure(figsize=(PAGE, 2.9))
    axes = fig.subplots(1, len(sigmas), sharex=True, sharey=True, squeeze=False)[0]
    for ax, sigma in zip(axes, sigmas, strict=True):
        _panel(ax, table[table["sigma"] == sigma])
        ax.set_title(f"σ of log length = {sigma:g}")
        ax.set_xlabel("mean lag of trained tokens, updates")
    axes[0].set_ylabel("samples/s ÷ synchronous")
    handles = [
        Line2D(
            [],
            [],
            color=color,
            marker=marker,
            linestyle=dash,
            markersize=SIZES.get(name, (4, 3))[0],
            markerfacecolor="none",
            label=LABELS.get(name, name),
        )
        for name, (color, marker, dash) in FAMILIES.items()
        if name in set(table["family"])
    ]
    legend(fig, handles, ncols=3, columnspacing=1.4)
    return fig


def _panel(ax: Axes, rows: pd.DataFrame) -> None:
    ax.axhline(1, color=RULE, linewidth=0.6, zorder=1)
    for name, (color, marker, dash) in FAMILIES.items():
        family = rows[rows["family"] == name]
        x, y = family["lag_token"], family["speed"]
        size, layer = SIZES.get(name, (4, 3))
        # Hollow, the large ones behind: where points coincide every marker is still seen.
        ax.plot(
            x,
            y,
            color=color,
            marker=marker,
            linestyle=dash,
            linewidth=1.0,
            markersize=size,
            markerfacecolor="none",
            markeredgewidth=1.0,
            zorder=layer,
        )
        for at, height, setting in family[["lag_token", "speed", "setting"]].itertuples(index=False):
            if (name, setting) in MARKED:
                offset = MARKED[name, setting]
                ax.annotate(
                    setting, (at, height), offset, textcoords="offset points", fontsize=7, color=color
                )
    ax.set_xscale("symlog", linthresh=1.0)
    ax.set_xlim(-0.1, None)
    mark_switch(ax, 1.0, top=True)
    ax.set_xticks([0, 0.5, 1, 2, 4, 8], ["0", "½", "1", "2", "4", "8"])
    ax.minorticks_off()


def draw_lags(
    token_L: NDArray[np.float64], sample_L: NDArray[np.float64], group_L: NDArray[np.float64]
) -> Figure:
    """Return a column-wide figure of lag shares by token, sample and group."""
    fig = Figure(figsize=(COLUMN, 2.2))
    ax = fig.subplots()
    looks = (
        ("tokens", token_L, BLUE, SOLID),
        ("samples", sample_L, ORANGE, LONG),
        ("groups", group_L, GREEN, SHORT),
    )
    largest = 1
    for name, share_L, color, dash in looks:
        largest = max(largest, *np.flatnonzero(share_L > 1e-4).tolist())
        ax.plot(share_L, color=color, linestyle=dash, marker="o", markersize=3, label=name)
    ax.set(xlim=(-0.3, largest + 0.5), xlabel="lag, updates", ylabel="share")
    ax.set_ylim(bottom=0)
    ax.legend()
    return fig
