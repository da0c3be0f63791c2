"""REC on stale data: final accuracy against lag, with and without clip and weight."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.judging.intervals import median_interval
from analysis.palette import BLUE, LONG, RULE, SKY, SOLID, TAN, VERMILION, Dash
from analysis.tables.outcomes import ACCURACY, need
from paper_figs.base import COLUMN, figure
from paper_figs.panels import legend

WEIGHT = "recipe_args.weight"
ARMS: tuple[tuple[str, str, str, str, str, Dash], ...] = (
    ("rec", "none", "clip alone", BLUE, "o", SOLID),
    ("rec", "importance", "clip and weight", SKY, "s", LONG),
    ("rec_oneside", "importance", "weight alone", TAN, "D", LONG),
    ("rec_oneside", "none", "neither", VERMILION, "X", SOLID),
)
"""Recipe, weight, label, color, marker, dash."""
NUDGE = 0.2
"""Distance between two arms at the same lag, in units of the distance between lags."""

CAPTION = (
    "Final accuracy of the toy LLM (mean over its last three evaluations) after learning from data of one "
    "exact lag, by group-relative REINFORCE with and without REC's one-sided clip (0.2) and importance "
    "weights; all else is equal. Lines: median over seeds; bars: order-statistic 95% interval of the "
    "median; dots: seeds; the arms of one lag stand side by side between two rules. Offline: all data come "
    "from the first weights. The clip is what keeps accuracy; under it, importance weights lower accuracy "
    "at lags 16 and 64."
)


@figure(
    "rec",
    data="rec",
    caption=CAPTION,
    supports=("rec-clip-prevents-collapse", "rec-importance-weights-change-nothing"),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the column-wide figure; columns recipe, recipe_args.weight, lag, seed, accuracy."""
    need(table, ["recipe", WEIGHT, "lag", "seed", ACCURACY])
    lags = sorted(set(table["lag"]))
    fig = Figure(figsize=(COLUMN, 2.5))
    ax = fig.subplots()
    for index, (recipe, weight, _, color, marker, dash) in enumerate(ARMS):
        rows = table[(table["recipe"] == recipe) & (table[WEIGHT] == weight)]
        _arm(ax, rows, lags, NUDGE * (index - (len(ARMS) - 1) / 2), color, marker, dash)
    ax.set_xticks(range(len(lags)), [str(lag) for lag in lags[:-1]] + ["offline"])
    for edge in range(len(lags) - 1):
        ax.axvline(edge + 0.5, color=RULE if edge == len(lags) - 2 else "#d0d0d0", linewidth=0.6, zorder=1)
    ax.set_xlim(-0.5, len(lags) - 0.5)
    ax.grid(visible=False, axis="x")
    ax.tick_params(axis="x", length=0)
    ax.set_xlabel("lag (optimizer steps)")
    ax.set_ylabel("final accuracy")
    ax.set_ylim(-0.03, 1.03)
    handles = [
        Line2D([], [], color=color, marker=marker, linestyle=dash, label=label)
        for _, _, label, color, marker, dash in ARMS
    ]
    legend(fig, handles, ncols=2, columnspacing=1.4)
    return fig


def _arm(
    ax: Axes, rows: pd.DataFrame, lags: list[int], shift: float, color: str, marker: str, dash: Dash
) -> None:
    """Draw one arm: a dot per seed, and the medians over lags with their intervals."""
    places = [index + shift for index in range(len(lags))]
    values = [rows.loc[rows["lag"] == lag, ACCURACY].to_numpy() for lag in lags]
    for place, seeds in zip(places, values, strict=True):
        ax.plot([place + 0.4 * NUDGE] * len(seeds), seeds, ".", color=color, alpha=0.4, markersize=3)
    found = [median_interval(seeds) for seeds in values]
    center = [each.center for each in found]
    reach = [
        [each.center - each.low for each in found],
        [each.high - each.center for each in found],
    ]
    ax.errorbar(places, center, reach, color=color, marker=marker, linestyle="", markersize=4, elinewidth=1)
    # Between lags a line says where an arm goes; to "offline", which is no lag, there is no between.
    ax.plot(places[:-1], center[:-1], color=color, linestyle=dash, linewidth=0.8)
