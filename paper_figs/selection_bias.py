"""Effect of an age limit on length: distribution of responses in time, the learned policy, the price."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from analysis.experiments.weights.selection_bias import LENGTH, NO_LIMIT, VALUE, law_in_time
from analysis.judging.intervals import student_interval
from analysis.palette import BLUE, DASH_DOT, DOT, GREEN, INK, LONG, RULE, SHORT, SOLID, VERMILION, Dash
from analysis.tables.outcomes import need
from paper_figs.base import PAGE, figure

RULES: dict[str, tuple[str, str, Dash]] = {
    "wait": (GREEN, "o", SOLID),
    "discard": (BLUE, "s", LONG),
    "drop": (VERMILION, "^", SHORT),
}
"""Color, marker and line of each answer to samples that are too old, in the order of the legend."""
STALLED, EMPTY = "mean staleness/stalled", "mean staleness/empty"
LOW = 0.95
"""Final value below which panel (c) writes it."""
LAW = 0.32
"""Chance of the end token in panel (a): the mean length is that of the sweep at its start."""
LONGEST = 8

CAPTION = (
    "Selection bias of age limits where a group takes as long as its longest response and the reward "
    "ignores length; wait: the trainer waits for old groups; discard: the next groups replace them; drop: "
    "they leave the batch, and an empty batch makes no update. (a) Exact distribution of lengths: as "
    "generated (end token with probability 0.32, at most 8 tokens), and in groups with no member longer "
    "than 3 or 5 tokens. (b) Mean length of the policy's responses during training, minus that without an "
    "age limit on the same seed, by age limit in optimizer steps; small markers: seeds; large: mean with "
    "95% t interval, n = 24; under drop at limits 1 and 2 responses are short also because less was "
    "learned. (c) The price: time steps per update, by age limit, means; the final exact value is written "
    "where it is below 0.95."
)


@figure(
    "selection-bias",
    data="selection-bias",
    caption=CAPTION,
    supports=(
        "groups-in-time-are-short",
        "discarding-old-groups-shortens-the-policy",
        "waiting-leaves-lengths-alone",
        "dropping-without-replacement-starves",
    ),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the page-wide figure; columns too_old, age_limit, seed, mean length, value and stalled time."""
    need(table, ["too_old", "age_limit", "seed", LENGTH, VALUE, STALLED, EMPTY])
    fig = Figure(figsize=(PAGE, 2.6))
    law, length, price = fig.subplots(1, 3)
    _law(law)
    _length(length, table)
    _price(price, table)
    handles, labels = length.get_legend_handles_labels()
    free, _ = price.get_legend_handles_labels()
    fig.legend([*handles, *free], [*labels, "no age limit"], loc="outside upper center", ncols=4)
    return fig


def _law(ax: Axes) -> None:
    made_L: NDArray[np.float64] = LAW * (1 - LAW) ** np.arange(LONGEST, dtype=np.float64)
    made_L[-1] = (1 - LAW) ** (LONGEST - 1)
    at_L = np.arange(1, LONGEST + 1)
    laws: list[tuple[str, NDArray[np.float64], str, Dash]] = [
        ("all", made_L, INK, SOLID),
        ("longest ≤ 5", law_in_time(made_L, 5), RULE, LONG),
        ("longest ≤ 3", law_in_time(made_L, 3), RULE, DASH_DOT),
    ]
    for label, law_L, color, dash in laws:
        text = f"{label}: mean {law_L @ at_L:.1f}"
        shown = law_L > 0
        ax.plot(at_L[shown], law_L[shown], color=color, linestyle=dash, marker="o", markersize=3, label=text)
    ax.set_xlabel("length, tokens")
    ax.set_ylabel("probability")
    ax.set_ylim(0, 0.6)
    ax.legend(loc="upper right", fontsize=7, handlelength=1.6)
    ax.set_title("(a) what is in time, exact", loc="left")


def _length(ax: Axes, table: pd.DataFrame) -> None:
    free = table[table["age_limit"] == NO_LIMIT].set_index("seed")[LENGTH]
    limits = sorted(set(table["age_limit"]) - {NO_LIMIT})
    ax.axhline(0.0, color=RULE, linewidth=0.8, zorder=1)
    for offset, (rule, (color, marker, dash)) in zip((-0.16, 0.0, 0.16), RULES.items(), strict=True):
        centers, lows, highs = [], [], []
        for place, limit in enumerate(limits):
            arm = table[(table["too_old"] == rule) & (table["age_limit"] == limit)].set_index("seed")[LENGTH]
            change_N = (arm - free).dropna().to_numpy()
            jitter = np.linspace(-0.05, 0.05, change_N.size)
            ax.plot(
                place + offset + jitter, change_N, linestyle="", marker=marker, color=color, ms=1.5, alpha=0.4
            )
            found = student_interval(change_N)
            centers.append(found.center)
            lows.append(found.center - found.low)
            highs.append(found.high - found.center)
        x = np.arange(len(limits)) + offset
        ax.errorbar(
            x, centers, yerr=[lows, highs], color=color, marker=marker, ms=4, linestyle=dash, label=rule
        )
    ax.set_xticks(range(len(limits)), [str(limit) for limit in limits])
    ax.grid(visible=False, axis="x")
    ax.set_xlabel("age limit, optimizer steps")
    ax.set_ylabel("change of mean length, tokens")
    ax.set_title("(b) what the policy writes", loc="left")


def _price(ax: Axes, table: pd.DataFrame) -> None:
    free = table[table["age_limit"] == NO_LIMIT]
    ax.axhline(float(_time(free).mean()), color=INK, linewidth=0.9, linestyle=DOT, label="no age limit")
    limits = sorted(set(table["age_limit"]) - {NO_LIMIT})
    for offset, (rule, (color, marker, dash)) in zip((-0.16, 0.0, 0.16), RULES.items(), strict=True):
        arms = [table[(table["too_old"] == rule) & (table["age_limit"] == limit)] for limit in limits]
        time = [float(_time(arm).mean()) for arm in arms]
        x = np.arange(len(limits)) + offset
        ax.plot(x, time, color=color, marker=marker, ms=4.5, linestyle=dash)
        for place, height, arm in zip(x, time, arms, strict=True):
            if arm[VALUE].mean() < LOW:
                ax.annotate(
                    f"value {arm[VALUE].mean():.2f}", (place, height), (7, 0), textcoords="offset points",
                    va="center", fontsize=7, color=color,
                )  # fmt: skip
    ax.set_xticks(range(len(limits)), [str(limit) for limit in limits])
    ax.grid(visible=False, axis="x")
    ax.set_xlabel("age limit, optimizer steps")
    ax.set_yscale("log")
    ax.set_yticks([1, 3, 10, 30], ["1", "3", "10", "30"])
    ax.minorticks_off()
    ax.set_ylim(0.85, 45)
    ax.set_ylabel("time steps per update")
    ax.set_title("(c) the price", loc="left")


def _time(rows: pd.DataFrame) -> pd.Series:
    """Return time steps per update: a batch that is left empty takes its time and makes no update."""
    return (1 + rows[STALLED]) / (1 - rows[EMPTY].fillna(0.0))
