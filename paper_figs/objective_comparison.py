"""Effective weights of a few objectives, a panel each, for `testbed objectives compare --figure`."""

import textwrap
from itertools import pairwise

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.experiments.cards.objective_weights import COLUMNS
from analysis.palette import BLUE, RULE, VERMILION
from analysis.tables.outcomes import need
from paper_figs.figure_registry import PAGE
from paper_figs.panels import legend

OTHERS = "#c4c4c4"
ACROSS = 3
"""Panels side by side."""
LIMIT = 3.0
"""Weights beyond this size are cut, because objectives differ below it."""


def draw(table: pd.DataFrame) -> Figure:
    """Return a page-wide figure: a panel per distinct curve, others in gray; columns of objective-weights.

    Objectives with exactly equal curves share a panel titled with all their names.
    """
    need(table, list(COLUMNS))
    names = _same_curves(table)
    limit = min(float(table["weight"].abs().max()) or 1.0, LIMIT)
    across = min(len(names), ACROSS)
    down = -(-len(names) // across)
    fig = Figure(figsize=(PAGE, 0.75 + 1.75 * down))
    axes = fig.subplots(down, across, sharex=True, sharey=True, squeeze=False).ravel()
    for ax, (name, label) in zip(axes, names.items(), strict=False):
        _panel(ax, table, name, limit)
        ax.set_title(textwrap.fill(label, 26 if across == ACROSS else 60), fontsize=7, pad=3)
    for ax in axes[len(names) :]:
        ax.set_axis_off()
    for index in range(len(names)):
        axes[index].tick_params(labelbottom=index + across >= len(names))
    kinds = sorted({f"log {axis}" for axis in table["axis"]})
    fig.supxlabel(" or ".join(kinds).replace("mu", "μ").replace("pi", "π"), fontsize=8)
    fig.supylabel("effective weight w", fontsize=8)
    handles = [
        Line2D([], [], color=BLUE, linewidth=1.4, label="A = +1"),
        Line2D([], [], color=VERMILION, linewidth=1.4, label="A = −1"),
        Line2D([], [], color=RULE, marker="o", linestyle="none", markersize=3.5, label="on-policy"),
    ]
    if len(names) > 1:
        handles.append(Line2D([], [], color=OTHERS, linewidth=0.7, label="the others"))
    legend(fig, handles, ncols=4, columnspacing=1.4)
    return fig


def _same_curves(table: pd.DataFrame) -> dict[str, str]:
    """Return the first name of every set of equal curves and the label of the set."""
    sets: dict[bytes, list[str]] = {}
    for name, rows in table.groupby("objective", sort=False):
        sets.setdefault(rows[["advantage", "log_ratio", "weight"]].to_numpy().tobytes(), []).append(str(name))
    return {names[0]: _label(names) for names in sets.values()}


def _label(names: list[str]) -> str:
    """Return "cispo@slime, @verl" for several names of one base."""
    label = names[0]
    for before, name in pairwise(names):
        base, _, source = name.partition("@")
        label += f", @{source}" if source and before.partition("@")[0] == base else f", {name}"
    return label


def _panel(ax: Axes, table: pd.DataFrame, name: str, limit: float) -> None:
    """Draw the curves of one objective over those of all others."""
    ax.axvline(0, color=RULE, linewidth=0.5, zorder=1)
    ax.axhline(0, color=RULE, linewidth=0.5, zorder=1)
    for _, curve in table[table["objective"] != name].groupby(["objective", "axis", "advantage"], sort=False):
        ax.plot(curve["log_ratio"], curve["weight"], color=OTHERS, linewidth=0.7, zorder=1.5)
    own = table[table["objective"] == name]
    for _, curve in own.groupby(["axis", "advantage"], sort=False):
        color = BLUE if float(curve["advantage"].iloc[0]) > 0 else VERMILION
        ax.plot(curve["log_ratio"], curve["weight"], color=color, linewidth=1.4)
        here = curve[curve["on_policy"] == 1]
        ax.plot(here["log_ratio"], here["weight"], "o", color=color, markersize=3.5)
    ax.set_xlim(-3, 3)
    ax.set_ylim(-1.06 * limit, 1.06 * limit)
    reach = float(own["weight"].iloc[int(own["weight"].abs().to_numpy().argmax())])
    if abs(reach) > 1.06 * limit:
        text = f"{'↑' if reach > 0 else '↓'} {reach:.3g}".replace("-", "−")
        ax.annotate(text, (0.03, 0.03), xycoords="axes fraction", va="bottom", fontsize=7, color=RULE)
