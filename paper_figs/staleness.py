"""Accuracy and sequence ESS against step: one column of panels per lag, one color per recipe."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from analysis.judging.intervals import bands, median_interval
from analysis.palette import RULE, in_order, look, spread
from analysis.tables.outcomes import ACCURACY, ESS, ESS_FLOOR, WINDOW, need
from paper_figs.figure_registry import PAGE, figure
from paper_figs.panels import few, legend, say_dropped

PANELS = 5
"""Most lags shown side by side; of more, the smallest, the largest and evenly spaced ones between them."""

END = 0.045
"""Distance between two intervals right of a panel's last step, as a share of the steps."""

CAPTION = (
    "Accuracy on held-out prompts (top) and effective sample size of the sequence ratios (bottom) of "
    "recipes that learn from data exactly `lag` optimizer steps old, all at one learning rate: a stress "
    "test, not a ranking at each method's best. Up to the vertical line, step = lag, the data come from "
    "the start weights (shaded); at the dotted line a run has made as many stale updates as a run at the "
    "longest lag makes in all. Lines: median over seeds; right of each panel: the last 3 logged rows of a "
    "run, averaged, median with order-statistic interval (the range below six seeds). ESS: Kish, raw, as "
    "a share of the N sequences of a step; dashed: its floor 1/N."
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
    recipes, dropped = few(in_order(set(table["recipe"])))
    table = table[table["recipe"].isin(recipes)]
    fig = Figure(figsize=(PAGE, 3.5))
    axes = fig.subplots(2, len(lags), sharex=True, sharey="row", squeeze=False)
    for column, lag in enumerate(lags):
        rows = table[table["lag"] == lag]
        _curves(axes[0, column], rows, ACCURACY, recipes)
        _curves(axes[1, column], rows, ESS, recipes)
        for ax in axes[:, column]:
            _start_weights(ax, lag, float(table["step"].max()))
            _equal_updates(ax, lag, lags[-1], float(table["step"].max()))
        axes[0, column].set_title("lag 0 (on-policy)" if lag == 0 else f"lag {lag}")
        axes[1, column].set_xlabel("optimizer step")
    _frame(axes[0, 0], axes[1, 0], table)
    for ax in axes[1]:
        ax.axhline(
            float(table[ESS_FLOOR].min()), color=RULE, linestyle=(0, (4, 2)), linewidth=0.8, zorder=1.5
        )
    _lag_label(axes[1, -1], lags[-1], float(table["step"].max()))
    stale = [(ax, lag) for ax, lag in zip(axes[1], lags, strict=True) if lag > 0]
    for ax, lag in stale[:1]:
        _equal_label(ax, lag, lags[-1], float(table["step"].max()))
    _floor_label(axes[1, 0], float(table[ESS_FLOOR].min()))
    handles = [
        Line2D([], [], color=look(r).color, linestyle=look(r).dash, marker=look(r).marker, label=r)
        for r in recipes
    ]
    legend(fig, handles, ncols=min(len(handles), 6), columnspacing=1.4)
    say_dropped(fig, dropped)
    return fig


def _curves(ax: Axes, rows: pd.DataFrame, metric: str, recipes: list[str]) -> None:
    """Draw the medians over seeds, and right of the last step the end of the runs with its interval."""
    summary = bands(rows, ["recipe", "step"], metric)
    last = float(rows["step"].max())
    for order, recipe in enumerate(recipes):
        curve = summary[summary["recipe"] == recipe]
        style = look(recipe)
        # Markers of different recipes start at different steps, so curves that coincide can still be told
        # apart.
        every = max(len(curve) // 5, 1)
        ax.plot(
            curve["step"],
            curve["center"],
            color=style.color,
            linestyle=style.dash,
            linewidth=1.0,
            marker=style.marker,
            markevery=(order * every // max(len(recipes), 1), every),
            markeredgecolor="white",
            markeredgewidth=0.3,
        )
        end = median_interval(ends(rows[rows["recipe"] == recipe], metric))
        ax.errorbar(
            [last * (1 + END * (order + 1))],
            [end.center],
            [[end.center - end.low], [end.high - end.center]],
            color=style.color,
            marker=style.marker,
            markersize=3.4,
            elinewidth=1.1,
        )


def ends(rows: pd.DataFrame, metric: str) -> NDArray[np.float64]:
    """Return the mean of the last WINDOW logged rows of every seed."""
    last = rows.sort_values("step").groupby("seed")[metric].tail(WINDOW)
    return last.groupby(rows.loc[last.index, "seed"]).mean().to_numpy(dtype=np.float64)


def _start_weights(ax: Axes, lag: int, last: float) -> None:
    """Shade the steps trained on data of the start weights, up to a line at step = lag."""
    if 0 < lag <= last:
        ax.axvspan(0, lag, color=RULE, alpha=0.1, linewidth=0, zorder=0)
        ax.axvline(lag, color=RULE, linewidth=0.7, zorder=1)


def _equal_updates(ax: Axes, lag: int, longest: int, last: float) -> None:
    """Mark the step after as many stale updates as the longest lag's panel has at its end."""
    if 0 < lag < longest < last:
        ax.axvline(lag + last - longest, color=RULE, linewidth=0.7, linestyle=":", zorder=1)


def _equal_label(ax: Axes, lag: int, longest: int, last: float) -> None:
    """Name the dotted line, once."""
    if 0 < lag < longest < last:
        ax.annotate(
            f"{last - longest:g} stale", (lag + last - longest, 0.03), (-3, 0),
            xycoords=("data", "axes fraction"), textcoords="offset points",
            ha="right", va="bottom", fontsize=7, color=RULE,
        )  # fmt: skip


def _lag_label(ax: Axes, lag: int, last: float) -> None:
    """Name the vertical line, once."""
    if 0 < lag <= last:
        ax.annotate(
            "step = lag", (lag, 0.03), (3, 0), xycoords=("data", "axes fraction"), textcoords="offset points",
            ha="left", va="bottom", fontsize=7, color=RULE,
        )  # fmt: skip


def _frame(top: Axes, bottom: Axes, table: pd.DataFrame) -> None:
    top.set_ylabel("accuracy")
    top.set_ylim(-0.03, max(1.03, float(table[ACCURACY].max()) * 1.03))
    bottom.set_ylabel("sequence ESS\n(Kish, share of N)")
    bottom.set_yscale("log")
    bottom.set_ylim(float(table[ESS_FLOOR].min()) / 1.9, 1.35)
    bottom.set_xlim(0, float(table["step"].max()) * (1 + END * (table["recipe"].nunique() + 1.1)))
    hundreds = np.arange(0, float(table["step"].max()) + 1, 100)
    bottom.set_xticks(hundreds if hundreds.size > 1 else [0.0, float(table["step"].max())])


def _floor_label(ax: Axes, floor: float) -> None:
    ax.annotate(
        f"floor 1/N = 1/{round(1 / floor)}",
        xy=(0.98, floor),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=7,
        color=RULE,
    )
