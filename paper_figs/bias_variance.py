"""Exact bias against exact variance of importance ratios as the policy drifts away from its data."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.palette import (
    BLUE,
    DASH_DOT,
    DOT,
    GRAY,
    GREEN,
    INK,
    LONG,
    ORANGE,
    PINK,
    SHORT,
    SKY,
    SOLID,
    VERMILION,
    Look,
)
from analysis.tables.outcomes import need
from paper_figs.base import PAGE, figure

LOOKS = {
    "none": Look(GRAY, "X", DOT),
    "token": Look(BLUE, "o", SOLID),
    "clipped token": Look(SKY, "v", SHORT),
    "suffix": Look(PINK, "<", DASH_DOT),
    "min-prefix": Look(ORANGE, "P", SHORT),
    "prefix": Look(VERMILION, "^", LONG),
    "geometric": Look(GREEN, "s", DASH_DOT),
    "sequence": Look(INK, "D", SOLID),
}
COLUMNS = ["ratio", "drift", "bias", "bias_low", "bias_high", "deviation", "deviation_low", "deviation_high"]
FLOOR = 4e-3
"""Where a bias of exactly 0 is drawn on a log axis."""

CAPTION = (
    "Exact bias |E g - grad J| / |grad J| and exact deviation sqrt(tr Cov g) / |grad J| of the one-sample "
    "gradient with signal R - J(mu), over all 256 responses (4 tokens from 4). Drift: standard deviation "
    "of the step from mu's to pi's logits, where mu's logits are standard normal; clipped token: ppo_clip "
    "at its defaults. Lines: median of 16 random trees; bands: quartiles over trees; the sequence ratio "
    "has bias 0 and is drawn at the edge. (c) The two against each other as the drift grows: paths start "
    "where bias is smallest, and big markers stand at the largest drift."
)


@figure(
    "bias-variance",
    data="bias-variance",
    caption=CAPTION,
    supports=(
        "gradient-only-three-ratio-signal-pairs-unbiased",
        "gradient-bias-is-state-and-suffix",
        "prefix-ratio-variance",
    ),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the page-wide figure; columns ratio, drift, bias and deviation with quartiles."""
    need(table, COLUMNS)
    fig = Figure(figsize=(PAGE, 2.75))
    left, middle, right = fig.subplots(1, 3)
    for ratio, look in LOOKS.items():
        rows = table[table["ratio"] == ratio].sort_values("drift")
        if rows.empty:
            continue
        bias = rows["bias"].clip(lower=FLOOR)
        _line(left, rows["drift"], bias, rows[["bias_low", "bias_high"]].clip(lower=FLOOR), look, ratio)
        _line(middle, rows["drift"], rows["deviation"], rows[["deviation_low", "deviation_high"]], look, None)
        right.plot(bias, rows["deviation"], color=look.color, linestyle=look.dash)
        right.plot(bias.iloc[-1:], rows["deviation"].iloc[-1:], look.marker, color=look.color, markersize=5)
    _axes(left, middle, right)
    fig.legend(loc="outside upper center", ncols=len(LOOKS) // 2, columnspacing=1.6)
    return fig


def _line(ax: Axes, x: pd.Series, y: pd.Series, ends: pd.DataFrame, look: Look, label: str | None) -> None:
    ax.fill_between(x, ends.iloc[:, 0], ends.iloc[:, 1], color=look.color, alpha=0.1, linewidth=0)
    ax.plot(x, y, color=look.color, linestyle=look.dash, marker=look.marker, markersize=3, label=label)


def _axes(left: Axes, middle: Axes, right: Axes) -> None:
    for ax in (left, middle):
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("drift of the logits")
        ax.set_xticks([0.05, 0.1, 0.2, 0.5, 1.0], ["0.05", "0.1", "0.2", "0.5", "1"])
        ax.minorticks_off()
    right.set_xscale("log")
    right.set_yscale("log")
    for ax in (middle, right):
        ax.set_yticks([3, 5, 10, 20, 30], ["3", "5", "10", "20", "30"])
        ax.set_yticks([], minor=True)
    left.set_yticks([FLOOR, 0.01, 0.1, 1], ["0", "0.01", "0.1", "1"])
    right.set_xticks([FLOOR, 0.01, 0.1, 1], ["0", "0.01", "0.1", "1"])
    right.set_xticks([], minor=True)
    left.set_ylabel("relative bias")
    middle.set_ylabel("relative deviation")
    right.set_xlabel("relative bias")
    right.set_ylabel("relative deviation")
    for ax, letter in ((left, "(a) bias"), (middle, "(b) deviation"), (right, "(c) one against the other")):
        ax.set_title(letter, loc="left")
