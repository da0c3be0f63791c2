"""Accuracy and sequence ESS against step: one column of panels per lag, one color per recipe."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.collapse import ACCURACY, ESS, ESS_FLOOR, need
from analysis.intervals import bands
from analysis.palette import RULE, in_order, look, spread
from paper_figs.base import PAGE, figure

PANELS = 5
"""Most lags shown side by side; of more, the smallest, the largest and evenly spaced ones between them."""

CAPTION = (
    "Accuracy on held-out prompts (top) and effective sample size of the sequence ratios (bottom) while "
    "recipes learn from data that are exactly `lag` optimizer steps old. Lines: median over seeds; bands: "
    "order-statistic interval of the median, which is the range of the seeds when there are fewer than six. "
    "ESS: Kish, raw, as a share of the N sequences of a step; the dashed line is its floor 1/N, below which "
    "it cannot read."
)


@figure(
    "staleness",
    data="staleness",
    caption=CAPTION,
    supports=("reinforce-collapses-where-grpo-holds", "token-ess-hides-collapse"),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the page-wide figure; columns recipe, lag, seed, step, accuracy, sequence ESS and its floor."""
    need(table, ["recipe", "lag", "seed", "step", ACCURACY, ESS, ESS_FLOOR])
    # A diverged run without an accuracy has lost everything; leaving it out would flatter its recipe.
    table = table.assign(**{ACCURACY: table[ACCURACY].fillna(0.0)})
    lags = spread(sorted(set(table["lag"])), PANELS)
    table = table[table["lag"].isin(lags)]
    recipes = in_order(set(table["recipe"]))
    fig = Figure(figsize=(PAGE, 3.3))
    axes = fig.subplots(2, len(lags), sharex=True, sharey="row", squeeze=False)
    for column, lag in enumerate(lags):
        rows = table[table["lag"] == lag]
        _curves(axes[0, column], rows, ACCURACY, recipes)
        _curves(axes[1, column], rows, ESS, recipes)
        axes[0, column].set_title("lag 0 (on-policy)" if lag == 0 else f"lag {lag}")
        axes[1, column].set_xlabel("optimizer step")
    _frame(axes[0, 0], axes[1, 0], table)
    for ax in axes[1]:
        ax.axhline(
            float(table[ESS_FLOOR].min()), color=RULE, linestyle=(0, (4, 2)), linewidth=0.8, zorder=1.5
        )
    _floor_label(axes[1, 0], float(table[ESS_FLOOR].min()))
    _legend(fig, recipes)
    return fig


def _curves(ax: Axes, rows: pd.DataFrame, metric: str, recipes: list[str]) -> None:
    summary = bands(rows, ["recipe", "step"], metric)
    for order, recipe in enumerate(recipes):
        curve = summary[summary["recipe"] == recipe]
        style = look(recipe)
        # Markers of different recipes start at different steps, so curves that coincide can still be told
        # apart.
        every = max(len(curve) // 5, 1)
        ax.fill_between(
            curve["step"], curve["low"], curve["high"], color=style.color, alpha=0.16, linewidth=0
        )
        ax.plot(
            curve["step"],
            curve["center"],
            color=style.color,
            linestyle=style.dash,
            marker=style.marker,
            markevery=(order * every // max(len(recipes), 1), every),
            markeredgecolor="white",
            markeredgewidth=0.3,
        )


def _frame(top: Axes, bottom: Axes, table: pd.DataFrame) -> None:
    top.set_ylabel("accuracy")
    top.set_ylim(-0.03, max(1.03, float(table[ACCURACY].max()) * 1.03))
    bottom.set_ylabel("sequence ESS\n(Kish, share of N)")
    bottom.set_yscale("log")
    bottom.set_ylim(float(table[ESS_FLOOR].min()) / 1.9, 1.35)
    bottom.set_xlim(0, float(table["step"].max()) * 1.02)


def _floor_label(ax: Axes, floor: float) -> None:
    ax.annotate(
        f"floor 1/N = 1/{round(1 / floor)}",
        xy=(0.98, floor),
        xycoords=("axes fraction", "data"),
        xytext=(0, 2),
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=7,
        color=RULE,
    )


def _legend(fig: Figure, recipes: list[str]) -> None:
    handles = [
        Line2D([], [], color=look(r).color, linestyle=look(r).dash, marker=look(r).marker, label=r)
        for r in recipes
    ]
    fig.legend(handles=handles, loc="outside upper center", ncols=min(len(handles), 6), columnspacing=1.4)
