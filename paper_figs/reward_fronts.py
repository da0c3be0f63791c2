"""Accuracy against speed over the weight of the speed, rewards normalized together or each by itself."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.palette import BLUE, LONG, SOLID, VERMILION, Dash
from analysis.tables.outcomes import need
from paper_figs.base import COLUMN, figure
from paper_figs.panels import legend

LOOKS: dict[str, tuple[str, Dash, str]] = {"joint": (VERMILION, LONG, "o"), "decoupled": (BLUE, SOLID, "s")}


@figure(
    "reward-fronts",
    data="reward-fronts",
    caption=(
        "Where 20 (faint) and 80 expected steps end, by weight of the speed from 0.01 (right) to 100: means "
        "over 16 seeds of four bandits. Normalizing each reward by itself moves no front outward; it moves "
        "where a weight ends on it."
    ),
    supports=("decoupling-moves-the-front", "a-tuned-weight-loses-nothing-to-decoupling"),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the column-wide figure, a panel per kind of accuracy."""
    need(table, ["kind", "normalization", "steps", "weight", "accuracy", "speed"])
    kinds = list(dict.fromkeys(table["kind"]))
    fig = Figure(figsize=(COLUMN, 2.2))
    for ax, kind in zip(fig.subplots(1, len(kinds), sharey=True), kinds, strict=True):
        for (how, steps), rows in table[table["kind"] == kind].groupby(["normalization", "steps"]):
            mean = rows.groupby("weight")[["accuracy", "speed"]].mean()
            color, dash, marker = LOOKS[str(how)]
            late = steps == table["steps"].max()
            ax.plot(
                mean["accuracy"], mean["speed"], color=color, linestyle=dash, marker=marker, markersize=2.5,
                alpha=1.0 if late else 0.4, label=str(how) if late else None,
            )  # fmt: skip
        ax.set_title(kind, loc="left")
        ax.set_xlabel("accuracy")
    fig.axes[0].set_ylabel("speed")
    legend(fig, fig.axes[0].get_legend_handles_labels()[0], ncols=2)
    return fig
