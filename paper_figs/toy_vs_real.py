"""Final accuracy that the toy LLM foretells, and that Hugging Face models have, for every stale arm."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.palette import RULE, look
from analysis.tables.outcomes import ACCURACY, need
from paper_figs.base import PAGE, figure
from paper_figs.panels import legend
from paper_figs.words import NAMES

TOY = "toy accuracy"
TITLES = {
    "running-sum": "Qwen2, running sums",
    "reasoning-gym": "GPT-NeoX, one-digit sums",
    "length": "Llama, length",
}
CAPTION = (
    "Final accuracy of Hugging Face models of 70,000 weights on data that are 16 (open) and 64 (filled) "
    "optimizer steps old, against the toy LLM's on the same task: medians over seeds, the toy's over tuning "
    "seeds. Line: equality. One learning rate for all recipes, 150 steps. Arms "
    "near the bottom edge collapsed."
)


@figure(
    "toy-vs-real",
    data="toy-vs-real",
    caption=CAPTION,
    supports=("toy-ranks-real-arms-at-tau-0.8", "toy-ranks-real-recipes-at-lag-64"),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the page-wide figure; columns task, recipe, lag, seed, accuracy, toy accuracy."""
    return beside_the_toy(table, TITLES, {16: 0.0, 64: 1.0})


def beside_the_toy(table: pd.DataFrame, titles: Mapping[str, str], filled: Mapping[int, float]) -> Figure:
    """Return a panel per task of real against toy medians; how full the marker of a lag is, 0 to 1."""
    need(table, ["task", "recipe", "lag", "seed", ACCURACY, TOY])
    middle = table.groupby(["task", "recipe", "lag"])[[ACCURACY, TOY]].median().reset_index()
    fig = Figure(figsize=(PAGE, 2.9))
    axes = fig.subplots(1, len(titles))
    for ax, (task, title) in zip(axes, titles.items(), strict=True):
        ax.axline((0, 0), slope=1, color=RULE, linewidth=0.8)
        for _, arm in middle[middle["task"] == task].iterrows():
            style = look(arm["recipe"])
            fill = (style.color, filled.get(arm["lag"], 1.0))
            marker, size = (style.marker, 5) if arm["lag"] else ("*", 9)
            ax.plot(
                arm[TOY], arm[ACCURACY], marker, color=style.color, mfc=fill, mec=style.color, markersize=size
            )
        top = 0.05 + middle.loc[middle["task"] == task, [ACCURACY, TOY]].to_numpy().max()
        ax.set(xlim=(-0.03 * top, top), ylim=(-0.03 * top, top), xlabel="toy LLM")
        ax.set_title(f"{title}, {table[table['task'] == task]['seed'].nunique()} seeds", fontsize=8)
    axes[0].set_ylabel("Hugging Face model")
    recipes = sorted(middle["recipe"].unique())
    handles = [_mark(NAMES.get(name, name), look(name).color, look(name).marker) for name in recipes]
    if (middle["lag"] == 0).any():
        handles.append(_mark("GRPO, fresh data", look("grpo").color, "*"))
    legend(fig, handles, ncols=(len(handles) + 1) // 2)
    return fig


def _mark(label: str, color: str, marker: str) -> Line2D:
    return Line2D([], [], color=color, marker=marker, linestyle="", label=label)
