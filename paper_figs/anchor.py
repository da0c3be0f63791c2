"""Final value and clipped tokens against lag, under right, missing and approximate anchors."""

from collections.abc import Mapping
from types import MappingProxyType

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.judging.intervals import bands
from analysis.palette import (
    BLUE,
    DASH_DOT,
    DOT,
    GRAY,
    GREEN,
    LONG,
    ORANGE,
    PINK,
    SHORT,
    SOLID,
    VERMILION,
    Look,
)
from analysis.tables.outcomes import need
from paper_figs.base import PAGE, figure
from paper_figs.panels import legend, mark_cut

VALUE, CLIPPED = "exact/value", "mean actor/clip_share_last_pass"
LOOKS: Mapping[str, Look] = MappingProxyType(
    {
        "snapshot": Look(BLUE, "o", SOLID),
        "recompute": Look(GREEN, "s", LONG),
        "loglinear": Look(ORANGE, "^", SHORT),
        "ewma": Look(PINK, "D", DASH_DOT),
        "missing": Look(VERMILION, "X", SOLID),
        "behavior": Look(GRAY, "v", DOT),
    }
)
TITLES = {"decoupled": "decoupled PPO", "tis": "TIS", "mis": "MIS", "icepop": "IcePop"}

SHIFT = 0.11
"""Distance between neighboring arms at one lag, in units of the distance between lags."""

CAPTION = (
    "Four corrections with six anchors on eight noisy bandits of ten arms: 32 pulls per batch, eight "
    "passes over it, noise of 0.3 nats on the sampler's logits. Top: exact value of the final policy "
    "(strokes: the axis does not start at 0); bottom: share of tokens without a gradient at the last "
    "pass, by clip or mask, mean over training. Lines: median over 16 seeds with 95% order-statistic "
    "intervals, arms of one lag side by side. snapshot: the trainer at each token's version, the right "
    "anchor; recompute: the start of the step; loglinear: A-3PO; ewma: decay 0.889; missing: the present "
    "weights in place of lost log-probabilities; behavior: no anchor."
)


@figure(
    "anchor",
    data="anchors",
    caption=CAPTION,
    supports=(
        "missing-old-logits-cost-decoupled-ppo",
        "the-right-anchor-stalls-at-lag-16",
        "truncation-replaces-the-missing-trust-region",
    ),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the page-wide figure; columns recipe, anchor, lag, seed, final value, mean clip share."""
    need(table, ["recipe", "anchor", "lag", "seed", VALUE, CLIPPED])
    recipes = [name for name in TITLES if name in set(table["recipe"])]
    fig = Figure(figsize=(PAGE, 4.2))
    axes = fig.subplots(
        2, len(recipes), sharex=True, sharey="row", squeeze=False, gridspec_kw={"height_ratios": (1.6, 1)}
    )
    for column, recipe in enumerate(recipes):
        rows = table[table["recipe"] == recipe]
        _curves(axes[0, column], rows, VALUE)
        _curves(axes[1, column], rows, CLIPPED)
        axes[0, column].set_title(TITLES[recipe])
        axes[1, column].set_xlabel("lag, optimizer steps")
    mark_cut(axes[0, 0])
    axes[0, 0].set_ylabel("final value")
    axes[1, 0].set_ylabel("clipped or masked")
    axes[1, 0].set_ylim(-0.03, 1.0)
    handles = [
        Line2D([], [], color=look.color, linestyle=look.dash, marker=look.marker, label=name)
        for name, look in LOOKS.items()
    ]
    legend(fig, handles, ncols=len(handles), columnspacing=1.4)
    return fig


def _curves(ax: Axes, rows: pd.DataFrame, metric: str) -> None:
    summary = bands(rows, ["anchor", "lag"], metric)
    lags = sorted(set(summary["lag"]))
    # Lags double, and 0 has no logarithm: an ordinal axis gives every lag the same room.
    place = {lag: index for index, lag in enumerate(lags)}
    for name, look in LOOKS.items():
        curve = summary[summary["anchor"] == name]
        x = curve["lag"].map(place)
        # Arms that coincide stand beside each other, each with its own interval.
        beside = x + SHIFT * (list(LOOKS).index(name) - (len(LOOKS) - 1) / 2)
        reach = [curve["center"] - curve["low"], curve["high"] - curve["center"]]
        ax.errorbar(
            beside,
            curve["center"],
            reach,
            color=look.color,
            linestyle=look.dash,
            marker=look.marker,
            markersize=3.2,
            linewidth=0.8,
            elinewidth=0.8,
        )
    ax.set_xticks(list(place.values()), [str(lag) for lag in lags])
