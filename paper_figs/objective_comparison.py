"""Effective weights of a few objectives in one picture, for `testbed objectives compare --figure`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.collapse import need
from analysis.experiments.objective_weights import COLUMNS
from analysis.palette import (
    BLUE,
    DASH_DOT,
    DOT,
    GRAY,
    GREEN,
    LONG,
    ORANGE,
    PINK,
    RULE,
    SHORT,
    SKY,
    SOLID,
    TAN,
    VERMILION,
    Dash,
)
from paper_figs.base import PAGE

COLORS = (BLUE, VERMILION, GREEN, ORANGE, PINK, SKY, TAN, GRAY)
DASHES: tuple[Dash, ...] = (SOLID, LONG, SHORT, DASH_DOT, DOT)
LIMIT = 3.0
"""Weights beyond are cut: the middle is what tells objectives apart."""


def draw(table: pd.DataFrame) -> Figure:
    """Return a page-wide figure with one panel per sign of the advantage; columns as in objective-weights.

    Curves that are equal to the last digit are drawn once, under all their names.
    """
    need(table, list(COLUMNS))
    names = _same_curves(table)
    limit = min(float(table["weight"].abs().max()) or 1.0, LIMIT)
    across = 3 if max(map(len, names.values())) > 24 else 4
    fig = Figure(figsize=(PAGE, 2.7 + 0.16 * -(-len(names) // across)))
    axes = fig.subplots(1, 2)
    for ax, sign in zip(axes, (1, -1), strict=True):
        _panel(ax, table[table["advantage"] == sign], names)
        ax.set_title("A = +1" if sign > 0 else "A = −1")
        weights = table.loc[table["advantage"] == sign, "weight"]
        low, high = float(weights.min()), float(weights.max())
        ax.set_ylim(max(min(low, 0.0), -limit) - 0.06 * limit, min(max(high, 0.0), limit) + 0.06 * limit)
        if max(abs(low), abs(high)) > 1.06 * limit:
            ax.annotate(
                f"cut at ±{limit:g}; they reach {high if high > -low else low:.3g}".replace("-", "−"),
                (0.02, 0.98 if high > -low else 0.02),
                xycoords="axes fraction",
                va="top" if high > -low else "bottom",
                fontsize=7,
                color=RULE,
            )
    axes[0].set_ylabel("effective weight w")
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=min(len(names), across), columnspacing=1.4)
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


def _panel(ax: Axes, rows: pd.DataFrame, names: Mapping[str, str]) -> None:
    ax.axvline(0, color=RULE, linewidth=0.6, zorder=1)
    ax.axhline(0, color=RULE, linewidth=0.6, zorder=1)
    for index, (name, label) in enumerate(names.items()):
        curve = rows[rows["objective"] == name]
        color = COLORS[index % len(COLORS)]
        # Thinner and more broken from curve to curve, so that those that partly coincide are all seen.
        ax.plot(
            curve["log_ratio"],
            curve["weight"],
            color=color,
            linestyle=DASHES[index % len(DASHES)],
            linewidth=max(2.4 - 0.25 * index, 1.0),
            label=label,
        )
        here = curve[curve["on_policy"] == 1]
        ax.plot(here["log_ratio"], here["weight"], "o", color=color, markersize=max(6.0 - 0.6 * index, 2.5))
    kinds = sorted({f"log {axis}" for axis in rows["axis"]})
    ax.set_xlabel(" or ".join(kinds).replace("mu", "μ").replace("pi", "π") + "  (dots: on-policy)")
    ax.set_xlim(-3, 3)
