"""Time of the pipeline and updates to a return, by objective and mean lag."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.palette import RULE, SHORT, Look, look
from analysis.tables.outcomes import need
from paper_figs.base import PAGE, figure
from paper_figs.panels import legend, mark_switch

RATE = 16.0
"""Learning rate that is drawn."""
LABELS: Mapping[str, str] = MappingProxyType({"importance_reinforce": "importance weights"})
LOOKS: Mapping[str, str] = MappingProxyType({"importance_reinforce": "importance"})
"""Whose look an objective has that has none of its own."""

CAPTION = (
    "Nine pipelines on eight accelerators, from synchronous to streaming with 256 sequences per "
    "generator, each at its best split, drive learners on the token tree (batches of 64 responses, σ = 1 "
    "of log length, learning rate 16, 8 seeds of learner and pipeline). (a) Simulated hours until the "
    "exact return is 0.9, against the mean lag of the learner's batches; ring: each objective's best "
    "pipeline; dashed: synchronous training's updates at each pipeline's speed, the time needed if lag "
    "were harmless. (b) Updates until then. Lines: medians; bars: from the lowest to the highest seed; "
    '"never": at least half of the seeds do not reach it within 300 updates.'
)


@figure(
    "time-to-accuracy",
    data="pipeline-learning",
    caption=CAPTION,
    supports=(
        "time-to-accuracy-is-best-between-the-ends",
        "best-asynchrony-depends-on-the-objective",
        "one-update-of-lag-pays",
    ),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the page-wide figure; columns setting, recipe, learning_rate, age, period, updates, seconds."""
    need(table, ["setting", "recipe", "learning_rate", "age", "period", "updates", "seconds"])
    rows = table[table["learning_rate"] == RATE].assign(hours=lambda rows: rows["seconds"] / 3600)
    fig = Figure(figsize=(PAGE, 3.0))
    left, right = fig.subplots(1, 2)
    recipes = list(dict.fromkeys(rows["recipe"]))
    for recipe in recipes:
        _line(left, rows[rows["recipe"] == recipe], "hours", best=True)
        _line(right, rows[rows["recipe"] == recipe], "updates", best=False)
    _harmless(left, rows)
    left.set(yscale="log", ylabel="hours until return 0.9")
    left.set_yticks([0.1, 0.2, 0.5, 1], ["0.1", "0.2", "0.5", "1"])
    right.set(yscale="log", ylabel="updates until return 0.9")
    right.set_yticks([20, 50, 100, 200], ["20", "50", "100", "200"])
    for ax, letter in ((left, "(a)"), (right, "(b)")):
        ax.set_title(letter, loc="left")
        ax.set_xscale("symlog", linthresh=1.0)
        ax.set_xlim(-0.06, 1.25 * float(rows["age"].max()))
        mark_switch(ax, 1.0)
        ax.set_xticks([0, 0.5, 1, 2, 4, 8, 16], ["0", "½", "1", "2", "4", "8", "16"])
        ax.set_xlabel("mean lag, updates")
        ax.minorticks_off()
    handles = [_handle(recipe) for recipe in recipes]
    handles.append(Line2D([], [], color=RULE, linestyle=SHORT, label="if lag were harmless"))
    handles.append(_ring("its best pipeline"))
    legend(fig, handles, ncols=4, columnspacing=1.2)
    return fig


def _line(ax: Axes, rows: pd.DataFrame, column: str, best: bool) -> None:
    style = look(LOOKS.get(rows["recipe"].iloc[0], rows["recipe"].iloc[0]))
    seeds = rows.groupby("setting", sort=False)
    points = pd.DataFrame(
        {
            "age": seeds["age"].mean(),
            "middle": seeds[column].median(),
            "low": seeds[column].min(),
            "high": seeds[column].max(),
        }
    ).sort_values("age")
    seen = points[np.isfinite(points["middle"])]
    top = seen["high"].where(np.isfinite(seen["high"]), seen["middle"])
    ax.vlines(seen["age"], seen["low"], top, color=style.color, linewidth=0.8, alpha=0.6)
    ax.plot(
        seen["age"],
        seen["middle"],
        color=style.color,
        marker=style.marker,
        linestyle=style.dash,
        markersize=3.5,
    )
    if best:
        least = seen.loc[seen["middle"].idxmin()]
        ax.plot(
            least["age"],
            least["middle"],
            "o",
            color=style.color,
            markersize=9,
            markerfacecolor="none",
            zorder=5,
        )
    for age in points.loc[~np.isfinite(points["middle"]), "age"]:
        _never(ax, float(age), style)


def _never(ax: Axes, age: float, style: Look) -> None:
    """Mark at the upper edge a pipeline at which half of the seeds or more do not get there."""
    ax.annotate(
        "never",
        (age, 0.99),
        (0, -9),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha="center",
        va="top",
        fontsize=7,
        color=style.color,
        arrowprops={"arrowstyle": "->", "color": style.color, "lw": 0.9, "shrinkA": 0, "shrinkB": 0},
    )


def _ring(label: str) -> Line2D:
    return Line2D(
        [], [], color=RULE, marker="o", linestyle="none", markersize=7, markerfacecolor="none", label=label
    )


def _harmless(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw the synchronous number of updates, median over objectives and seeds, at each pipeline's speed."""
    needed = float(rows.loc[rows["age"] == 0, "updates"].median()) + 1
    pace = rows.groupby("setting", sort=False)[["age", "period"]].mean().sort_values("age")
    ax.plot(pace["age"], needed * pace["period"] / 3600, color=RULE, linestyle=SHORT, zorder=1)


def _handle(recipe: str) -> Line2D:
    style = look(LOOKS.get(recipe, recipe))
    label = LABELS.get(recipe, recipe)
    return Line2D(
        [], [], color=style.color, marker=style.marker, linestyle=style.dash, markersize=4, label=label
    )
