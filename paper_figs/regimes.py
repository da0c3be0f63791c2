"""Effect of each regime of a weight on a bandit's entropy."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.judging.intervals import student_interval
from analysis.palette import BLUE, INK, RULE, VERMILION
from analysis.tables.outcomes import need
from paper_figs.base import PAGE, figure
from paper_figs.panels import legend

REGIMES = (("right", "above 1"), ("right", "below 1"), ("wrong", "above 1"), ("wrong", "below 1"))
COLORS = {"right": BLUE, "wrong": VERMILION}

CAPTION = (
    "Change of the entropy's rate, per unit of step, where the ratios of one regime replace 1 in DISPO's "
    "update: answers right or wrong, ratio pi/mu above or below 1, on bandits of 16 answers whose policy "
    "has moved from mu at random (left) or mostly towards the reward (right). Dots: 128 seeds, the first "
    "run and the replication together; diamonds: means, bars: 95% intervals (Student's t). The source "
    "expects the first regime above 0 and the second below."
)


@figure(
    "regimes",
    data="regimes",
    caption=CAPTION,
    supports=(
        "ratios-above-one-raise-entropy",
        "ratios-below-one-lower-entropy",
        "small-ratios-on-wrong-answers-raise-entropy",
    ),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the page-wide figure; columns moved, answers, ratio, change."""
    need(table, ["moved", "answers", "ratio", "change"])
    fig = Figure(figsize=(PAGE, 2.6))
    moves = list(dict.fromkeys(table["moved"]))
    axes = fig.subplots(1, len(moves), sharey=True, squeeze=False)[0]
    for ax, moved in zip(axes, moves, strict=True):
        for place, (answers, ratio) in enumerate(REGIMES):
            chosen = (table["moved"] == moved) & (table["answers"] == answers) & (table["ratio"] == ratio)
            change_N = table[chosen]["change"].to_numpy(dtype=float)
            beside_N = place + 0.3 * (np.arange(change_N.size) / max(change_N.size - 1, 1) - 0.5)
            ax.plot(beside_N, change_N, ".", color=COLORS[answers], markersize=2.5, alpha=0.5)
            found = student_interval(change_N)
            ax.vlines(place, found.low, found.high, color=INK, linewidth=1.6)
            ax.plot(place, found.center, "D", color=INK, markersize=3.5)
        ax.axhline(0, color=RULE, linewidth=0.8, zorder=1)
        ax.set_xticks(range(len(REGIMES)), [f"{a},\n{r}" for a, r in REGIMES])
        ax.set_xlabel("regime")
        ax.set_title(f"π has moved {moved}", loc="left")
    axes[0].set_ylabel("change of dH/dt")
    handles = [
        Line2D([], [], color=color, marker=".", linestyle="none", label=f"A {sign} 0")
        for (_, color), sign in zip(COLORS.items(), "><", strict=True)
    ]
    legend(fig, handles, ncols=2)
    return fig
