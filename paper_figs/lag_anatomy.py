"""Schedules of equal mean lag side by side: their ages, the ratios these give, and what that costs."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.judging.intervals import student_interval
from analysis.palette import BLUE, GREEN, INK, ORANGE, RULE, SHORT, SOLID, VERMILION, Look
from analysis.tables.outcomes import need
from paper_figs.base import PAGE, figure
from paper_figs.panels import legend

LOOKS = {
    "exact": Look(INK, "o", SOLID),
    "uniform": Look(BLUE, "s", SOLID),
    "two-point": Look(GREEN, "^", SOLID),
    "geometric": Look(ORANGE, "D", SOLID),
    "rarely old": Look(VERMILION, "X", SOLID),
}
NAMES = {"uniform": "uniform,\nperiodic", "rarely old": "two-point,\nrarely old"}
BARS = ((0.001, 0.999, 0.8), (0.01, 0.99, 2.2), (0.1, 0.9, 5.0))
"""Levels between which a bar runs, and its width in points."""

CAPTION = (
    "Schedules of equal mean age on the same paths of weights: synchronous GRPO on a token tree, 16 "
    "seeds, every response enumerated. (a) Distributions of the ages at mean lag 8 (dashed), each scaled "
    "to its largest share; rarely old: one sample in eight is 64 steps old, the others are fresh. (b) "
    "Exact distribution of the sequence log-ratio under the behavior policy at mean lag 8: median, and "
    "bars from 10% to 90%, 1% to 99% and 0.1% to 99.9%, seeds and steps pooled. (c) Chi-square, 1/ESS - "
    "1, as a multiple of its value at exactly that lag: mean over seeds with 95% interval (Student's t); "
    "dashed: 1 + Var(age)/lag^2, the value for small drift along a line."
)


@figure(
    "lag-anatomy",
    data="lag-anatomy",
    caption=CAPTION,
    supports=(
        "spread-of-ages-raises-the-second-moment",
        "age-variance-adds-to-chi2-when-drift-keeps-its-direction",
        "grpo-drifts-along-a-line",
    ),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the page-wide figure; columns what, schedule, lag, seed, x, y."""
    need(table, ["what", "schedule", "lag", "seed", "x", "y"])
    schedules = [name for name in LOOKS if (table["schedule"] == name).any()]
    fig = Figure(figsize=(PAGE, 3.1))
    left, middle, right = fig.subplots(1, 3, width_ratios=(1.0, 1.0, 1.15))
    _ages(left, table[table["what"] == "age"], schedules)
    _ratios(middle, table[table["what"] == "log_ratio"], schedules)
    _cost(right, table, schedules)
    names = ((NAMES.get(name, name).replace("\n", " "), LOOKS[name]) for name in schedules)
    handles = [
        Line2D([], [], color=look.color, marker=look.marker, markersize=4, label=name) for name, look in names
    ]
    along = Line2D([], [], color=RULE, linestyle=SHORT, linewidth=0.8, label="(c) drift along a line")
    legend(fig, [*handles, along], ncols=3, columnspacing=1.4)
    return fig


def _rows(ax: Axes, schedules: list[str], *, named: bool) -> None:
    ax.set_ylim(len(schedules) - 0.4, -0.75)
    names = [NAMES.get(name, name) for name in schedules] if named else []
    ax.set_yticks(range(len(schedules)), names or [""] * len(schedules))
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")


def _ages(ax: Axes, rows: pd.DataFrame, schedules: list[str]) -> None:
    for place, name in enumerate(schedules):
        law = rows[rows["schedule"] == name]
        height = 0.7 * law["y"] / law["y"].max()
        ax.bar(law["x"], -height, bottom=place + 0.25, width=0.9, color=LOOKS[name].color, linewidth=0)
        ax.axhline(place + 0.25, color=RULE, linewidth=0.4)
    lag = int(rows["lag"].max())
    ax.axvline(lag, color=RULE, linestyle=SHORT, linewidth=0.8)
    ax.set_xlabel("age (optimizer steps)")
    ax.set_title(f"(a) ages, mean {lag}", loc="left")
    _rows(ax, schedules, named=True)


def _ratios(ax: Axes, rows: pd.DataFrame, schedules: list[str]) -> None:
    for place, name in enumerate(schedules):
        at = rows[rows["schedule"] == name].set_index("x")["y"]
        for low, high, width in BARS:
            ax.plot(
                [at[low], at[high]],
                [place, place],
                color=LOOKS[name].color,
                linewidth=width,
                solid_capstyle="butt",
            )
        ax.plot([at[0.5]], [place], marker="|", markersize=9, color=INK, markeredgewidth=0.8)
    ax.set_xlabel("log sequence ratio (nats)")
    ax.set_title("(b) ratios", loc="left")
    _rows(ax, schedules, named=False)


def _cost(ax: Axes, table: pd.DataFrame, schedules: list[str]) -> None:
    chi2 = table[table["what"] == "chi2"].pivot(index=["lag", "seed"], columns="schedule", values="y")
    line = table[table["what"] == "coherent"].pivot(index="lag", columns="schedule", values="y")
    lags = sorted(line.index)
    x = np.arange(len(lags))
    for name in schedules:
        style = LOOKS[name]
        found = [student_interval((chi2[name] / chi2["exact"]).loc[lag].to_numpy()) for lag in lags]
        center = np.array([interval.center for interval in found])
        reach = [center - [i.low for i in found], [i.high for i in found] - center]
        ax.plot(x, line[name], color=style.color, linestyle=SHORT, linewidth=0.8)
        ax.errorbar(x, center, reach, color=style.color, marker=style.marker, markersize=4, linewidth=1.2)
    ax.set_yscale("log")
    ticks = [1, 2, 5, 10, 20]
    ax.set_yticks(ticks, [str(tick) for tick in ticks])
    ax.set_yticks([], minor=True)
    ax.set_xticks(x, [str(lag) for lag in lags])
    ax.set_xlabel("mean lag (optimizer steps)")
    ax.set_ylabel("chi-square / that of exact lag")
    ax.set_title("(c) cost", loc="left")
