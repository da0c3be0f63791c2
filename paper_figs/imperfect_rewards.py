"""Compare one reward model with ensembles: gold reward while best-of-n or RL optimizes the proxy."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.judging.intervals import student_interval
from analysis.palette import BLUE, GRAY, GREEN, LONG, RULE, SHORT, SOLID, VERMILION, Dash
from analysis.tables.outcomes import need
from paper_figs.figure_registry import PAGE, figure
from paper_figs.panels import legend

LOOKS: dict[str, tuple[str, Dash, str]] = {
    "single": (VERMILION, SOLID, "one model"),
    "mean": (GRAY, SHORT, "mean of five"),
    "uncertainty": (BLUE, LONG, "mean less variance / 2"),
    "worst": (GREEN, SOLID, "worst of five"),
}

CAPTION = (
    "Gold reward against sqrt(KL) to the reference as a proxy is optimized, by the best of 1 to 256 draws "
    "and by RL with a KL penalty from 4 to 1/16 (the exact optimum). Proxies: Bradley-Terry models of 150 "
    "comparisons each, blind to a third of the features; a fifth of the answers is odd, rare in the "
    "reference, and worth -1. Upper row: true labels; lower row: a quarter of them flipped; conservative "
    "ensembles decline later and less, but they decline. Points: means over 48 seeds of the first run and "
    "the replication; bars: 95% intervals (Student's t)."
)


@figure(
    "imperfect-rewards",
    data="reward-ensembles",
    caption=CAPTION,
    supports=(
        "one-reward-model-is-over-optimized",
        "ensembles-remove-over-optimization",
        "ensembles-earn-more-gold-than-one-model",
    ),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the page-wide figure; columns noise, model, method, strength, kl, gold."""
    need(table, ["noise", "model", "method", "strength", "kl", "gold"])
    noises, methods = sorted(set(table["noise"])), list(dict.fromkeys(table["method"]))
    fig = Figure(figsize=(PAGE, 0.5 + 1.75 * len(noises)))
    axes = fig.subplots(len(noises), len(methods), sharex="col", sharey="row", squeeze=False)
    for (row, noise), (column, method) in ((r, c) for r in enumerate(noises) for c in enumerate(methods)):
        ax, rows = axes[row, column], table[(table["noise"] == noise) & (table["method"] == method)]
        for model, (color, dash, label) in LOOKS.items():
            by = rows[rows["model"] == model].groupby("strength", sort=True)
            far = np.sqrt(by["kl"].mean().to_numpy(dtype=float))
            gold = [student_interval(x.to_numpy(dtype=float)) for _, x in by["gold"]]
            order = np.argsort(far)
            center, low, high = (np.array([getattr(g, k) for g in gold]) for k in ("center", "low", "high"))
            ax.plot(far[order], center[order], color=color, linestyle=dash, label=label)
            ax.vlines(far, low, high, color=color, linewidth=0.8)
        ax.axhline(0, color=RULE, linewidth=0.6, zorder=1)
        ax.set_title(f"{method}, {noise:.0%} wrong labels", loc="left")
        if row == len(noises) - 1:
            ax.set_xlabel("√KL to the reference")
        if column == 0:
            ax.set_ylabel("gold reward")
    handles, _ = axes[0, 0].get_legend_handles_labels()
    legend(fig, handles, ncols=4)
    return fig
