"""Compare exact with sampled ESS: the sampled one stops falling at 1/N, the exact one does not."""

from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.judging.intervals import bands
from analysis.palette import INK, RULE, in_order, look
from analysis.tables.outcomes import ESS, ESS_FLOOR, need
from analysis.tables.sampled_ess import EXACT, deepest
from paper_figs.figure_registry import PAGE, figure

DEPTH = 1e-4
"""The axis of the exact ESS ends at this multiple of the floor 1/N; what is smaller is drawn at its edge."""

CAPTION = (
    "Effective sample size (Kish, sequence ratios, share of N) in a finite MDP that can compute it; a "
    "sampled ESS near its floor 1/N (dashed) says that the estimate is unreliable, not how unreliable. "
    "(a) Against lag, for the recipe with the smallest exact value, each run at the step of its smallest "
    "exact value. Line: exact, median over seeds; band: order-statistic interval of the median (the range "
    "below six seeds); dots: the same quantity from the N sampled sequences of that step, one per seed. "
    "(b) Every recipe, lag, seed and step of the table; exact values left of the axis are drawn at its "
    "edge."
)


@figure(
    "ess-collapse",
    data="ess-collapse",
    caption=CAPTION,
    supports=("sampled-ess-never-below-floor", "sampled-ess-overstates-near-floor"),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the page-wide figure; columns recipe, lag, seed, step, exact and sampled Kish ESS, floor."""
    need(table, ["recipe", "lag", "seed", "step", EXACT, ESS, ESS_FLOOR])
    floor = float(table[ESS_FLOOR].min())
    limits = (max(min(float(table[EXACT].min()), floor) / 3, floor * DEPTH), 1.6)
    fig = Figure(figsize=(PAGE, 2.6))
    left, right = fig.subplots(1, 2)
    _against_lag(left, table, limits)
    _against_exact(right, table, limits)
    _floor(left, floor, "left")
    _floor(right, floor, "right")
    recipes = in_order(set(table["recipe"]))
    handles = [
        Line2D([], [], color=look(r).color, linestyle="", marker=look(r).marker, label=f"sampled, {r}")
        for r in recipes
    ]
    exact = Line2D([], [], color=INK, label="exact")
    fig.legend(handles=[exact, *handles], loc="outside upper center", ncols=6, columnspacing=1.4)
    return fig


def _against_lag(ax: Axes, table: pd.DataFrame, limits: tuple[float, float]) -> None:
    recipe = str(table["recipe"].to_numpy()[table[EXACT].to_numpy().argmin()])
    rows = deepest(table[table["recipe"] == recipe])
    exact = bands(rows, ["lag"], EXACT)
    # Lags double, and 0 has no logarithm: an ordinal axis gives every lag the same room.
    place = {lag: index for index, lag in enumerate(exact["lag"])}
    x = np.arange(len(exact))
    ax.fill_between(x, exact["low"], exact["high"], color=INK, alpha=0.15, linewidth=0)
    ax.plot(x, exact["center"], color=INK, zorder=3)
    seeds = sorted(set(rows["seed"]))
    shift = dict(zip(seeds, np.linspace(-0.24, 0.24, len(seeds)) if len(seeds) > 1 else [0.0], strict=True))
    ax.scatter(
        rows["lag"].map(place) + rows["seed"].map(shift),
        rows[ESS],
        s=10,
        color=look(recipe).color,
        marker=look(recipe).marker,
        edgecolor="white",
        linewidth=0.3,
        zorder=4,
    )
    ax.set_yscale("log")
    ax.set_ylim(*limits)
    ax.set_xlim(-0.5, len(x) - 0.5)
    ax.set_xticks(x, [str(lag) for lag in exact["lag"]])
    ax.grid(visible=False, axis="x")
    ax.set_xlabel("lag (optimizer steps)")
    ax.set_ylabel("sequence ESS (Kish, share of N)")
    ax.set_title(f"(a) {recipe}, deepest step of each run", loc="left")


def _against_exact(ax: Axes, table: pd.DataFrame, limits: tuple[float, float]) -> None:
    for recipe in in_order(set(table["recipe"])):
        rows, style = table[table["recipe"] == recipe], look(recipe)
        shown = rows[EXACT].clip(lower=limits[0] * 1.15)
        # Rasterized: thousands of vector markers would make the PDF slow to open.
        ax.scatter(
            shown,
            rows[ESS],
            s=7,
            color=style.color,
            marker=style.marker,
            alpha=0.45,
            linewidth=0,
            rasterized=True,
        )
    floor = float(table[ESS_FLOOR].min())
    ax.plot(limits, limits, color=INK, zorder=3)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(*limits)
    ax.set_ylim(floor / 4, limits[1])
    ax.set_xlabel("exact ESS (share of N)")
    ax.set_ylabel("sampled ESS (share of N)")
    recipes = in_order(set(table["recipe"]))
    ax.set_title(
        f"(b) {recipes[0] if len(recipes) == 1 else 'all recipes'}: all lags, seeds, steps", loc="left"
    )
    ax.annotate(
        "sampled = exact",
        (limits[1] / 30, limits[1] / 30),
        (6, -4),
        textcoords="offset points",
        va="top",
        fontsize=7,
    )


def _floor(ax: Axes, floor: float, side: Literal["left", "right"]) -> None:
    ax.axhline(floor, color=RULE, linestyle=(0, (4, 2)), linewidth=0.8, zorder=1.5)
    ax.annotate(
        f"floor 1/N = 1/{round(1 / floor)}",
        xy=(0.02 if side == "left" else 0.98, floor),
        xycoords=("axes fraction", "data"),
        xytext=(0, -2),
        textcoords="offset points",
        ha=side,
        va="top",
        fontsize=7,
        color=RULE,
    )
