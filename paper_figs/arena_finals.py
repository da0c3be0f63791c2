"""The arena at lag 64: final value of each recipe after equal tuning, one panel per task."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.arena.table import costly, fresh
from analysis.judging.seed_intervals import student_interval
from analysis.palette import BLUE, INK, ORANGE
from paper_figs.figure_registry import PAGE, figure
from paper_figs.value_names import named

LAG = 64
CONTROLS = ("grpo", "placebo", "reinforce")
CAPTION = (
    "Final accuracy of recipes on data 64 optimizer steps old, learning rate and one knob of each tuned at "
    "that task and lag on other seeds; tasks that all recipes ran, on which that lag costs tuned GRPO "
    "something. Dots: means over 32 seeds or more; bars: 95 % intervals of the mean (Student's t, cut at 0 "
    "and 1). Line: GRPO on fresh data. Orange: the controls, GRPO, GRPO on other seeds (placebo), plain "
    "REINFORCE."
)


@figure("arena", data="arena", caption=CAPTION)
def draw(table: pd.DataFrame) -> Figure:
    """Return the page-wide figure; columns task, lag, arm, seed, final. The best recipe comes first."""
    old, level = table[table["lag"] == LAG], fresh(table)
    ran = old.groupby("task")["arm"].nunique()
    tasks = [task for task in costly(table, LAG) if ran[task] == ran.max()]
    means = old.groupby(["arm", "task"])["final"].mean().unstack()[tasks].dropna()
    arms = list(means.mean(axis=1).sort_values().index)
    fig = Figure(figsize=(PAGE, 0.7 + 0.17 * len(arms)))
    axes = fig.subplots(1, len(tasks), sharey=True, squeeze=False)[0]
    for ax, task in zip(axes, tasks, strict=True):
        rows = old[old["task"] == task]
        for place, arm in enumerate(arms):
            final_N = rows[rows["arm"] == arm]["final"].to_numpy(dtype=float)
            if final_N.size < 2:
                continue
            found = student_interval(final_N)
            color = ORANGE if arm in CONTROLS else BLUE
            ax.plot([max(found.low, 0), min(found.high, 1)], [place, place], color=color, linewidth=1.2)
            ax.plot(found.center, place, "o", color=color, markersize=3.5, clip_on=False)
        ax.grid(axis="y", alpha=0.3)
        ax.axvline(float(level[task]), color=INK, linewidth=0.8)
        ax.set_title(f"{task} (fresh {level[task]:.2f})")
        ax.set_xlabel("final accuracy at lag 64")
        ax.set_xlim(0, 1)
    axes[0].set_yticks(np.arange(len(arms)), [named(name).replace("_", " ") for name in arms])
    axes[0].set_ylim(-0.7, len(arms) - 0.3)
    return fig
