"""Hard prompts with prefixes and retries: final accuracy without a prefix, and rollouts to half."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.judging.intervals import median_interval
from analysis.palette import BLUE, GREEN, ORANGE, SKY, VERMILION
from analysis.tables.outcomes import ACCURACY, need
from paper_figs.base import COLUMN, figure

ROLLOUTS = "rollouts_to 0.5"
ARMS: tuple[tuple[float, str, str, str, str, str], ...] = (
    (0.5, "off", "default", "plain", VERMILION, "X"),
    (0.5, "teacher", "", "guided", BLUE, "o"),
    (0.5, "retry", "default", "retry", GREEN, "s"),
    (0.5, "retry", "credit=whole", "retry,\nall trained", ORANGE, "D"),
)
"""Noise, prefixes, their arguments ("" for any), label, color, marker."""
STORED: tuple[tuple[float, str, str, str, str, str], ...] = (
    (0.4, "off", "default", "plain", VERMILION, "X"),
    (0.4, "stored", "", "stored", SKY, "^"),
)

CAPTION = (
    "The toy LLM on running sums that its base model hardly ever gets right, after 240 steps of GRPO. Left: "
    "final accuracy on prompts without a prefix (base success 1 in 4,000), plain, with a prefix of the "
    "solution on half of the prompts, and with half of each group retried from its first error, the kept "
    "tokens out of the loss or in it. Right: rollouts until accuracy 0.5 (base success 1 in 400), plain and "
    "with prefixes of the base model's own successes, the 4,096 responses that were drawn to find them "
    "counted; runs that never get there are left out. Dots: seeds; bars: median and order-statistic 95% "
    "interval of it."
)


@figure(
    "prefixes",
    data="prefix-training",
    caption=CAPTION,
    supports=(
        "guided-prompts-teach-unguided-ones",
        "retries-solve-hard-prompts",
        "stored-prefixes-pay-for-their-rejections",
    ),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the column-wide figure; columns teacher_noise, prefix, prefix_args, seed, accuracy, rollouts."""
    need(table, ["teacher_noise", "prefix", "prefix_args", ACCURACY, ROLLOUTS])
    fig = Figure(figsize=(COLUMN, 2.3))
    left, right = fig.subplots(1, 2, width_ratios=[2.1, 1])
    _panel(left, table, ARMS, ACCURACY)
    left.set_ylim(-0.03, 1.03)
    left.set_ylabel("final accuracy, no prefix")
    _panel(right, table, STORED, ROLLOUTS, 1e-3)
    right.set_ylim(bottom=0)
    right.set_ylabel("thousand rollouts to 0.5")
    return fig


def _panel(
    ax: Axes,
    table: pd.DataFrame,
    arms: tuple[tuple[float, str, str, str, str, str], ...],
    value: str,
    scale: float = 1.0,
) -> None:
    """Draw one arm after the other: a dot per seed beside the median with its interval."""
    for place, (noise, prefix, given, _, color, marker) in enumerate(arms):
        rows = table[(table["teacher_noise"] == noise) & (table["prefix"] == prefix)]
        rows = rows[rows["prefix_args"] == given] if given else rows
        values = scale * rows[value].dropna().to_numpy()
        spread = np.linspace(-0.12, 0.12, len(values)) if len(values) > 1 else np.zeros(len(values))
        ax.plot(place + 0.22 + spread, values, ".", color=color, alpha=0.45, markersize=3)
        if len(values):
            found = median_interval(values)
            ax.errorbar(
                [place - 0.15],
                [found.center],
                yerr=[[found.center - found.low], [found.high - found.center]],
                color=color,
                marker=marker,
                markersize=4.5,
                capsize=2,
            )
    ax.set_xticks(range(len(arms)), [label for *_, label, _, _ in arms], fontsize=7)
    ax.set_xlim(-0.55, len(arms) - 0.45)
    ax.tick_params(axis="x", length=0)
    ax.grid(visible=False, axis="x")
