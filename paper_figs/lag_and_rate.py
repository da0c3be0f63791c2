"""Lag and learning rate in the toy LLM: what staleness costs against their product; the map of recipes."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.experiments.lag.lag_and_rate import EXPERIMENT, losses
from analysis.palette import BLUE, GREEN, RULE, VERMILION
from analysis.tables.outcomes import ACCURACY, need
from paper_figs.base import PAGE, figure
from paper_figs.phase_diagram import maps

COLORS = (BLUE, GREEN, VERMILION)
COLUMNS = ["recipe", "lag", "learning_rate", "seed", ACCURACY, "collapsed", "diverged"]
CAPTION = (
    "Equal lag times learning rate does not cost alike: final accuracy at lag 0 less that at the lag, same "
    "rate and seed, against the product of lag and learning rate, in a toy LLM of width 16 with Adam after "
    "600 steps. If the product alone counted, the three curves of a recipe would lie on each other. Median "
    "over up to 12 seeds, those that reach 0.5 at lag 0; bars: quartiles."
)
MAP = (
    "Recipes on data that are `lag` optimizer steps old, in a toy LLM of width 16 after 600 steps, 12 "
    "seeds each, in the order of their tuned accuracy at the largest lag. Left: median final accuracy at "
    "the best of three learning rates, chosen for this recipe and lag on the other half of the seeds. "
    "Middle: the same at the middle rate. Right: share of runs, over all rates and seeds, that collapsed "
    "(docs/outcomes.md) or diverged; a run that never learns cannot collapse."
)


@figure("lag-and-rate", data="lag-and-rate", caption=CAPTION)
def draw(table: pd.DataFrame) -> Figure:
    """Return small multiples over recipes; columns of the experiment's table."""
    lost = losses(table)
    recipes = list(dict.fromkeys(table["recipe"]))
    fig = Figure(figsize=(PAGE, 4.6))
    axes = fig.subplots(3, -(-len(recipes) // 3), sharex=True, sharey=True)
    for ax, recipe in zip(axes.flat, recipes, strict=True):
        _curves(ax, lost[lost["recipe"] == recipe])
        ax.set_title(recipe, fontsize=8)
    fig.suptitle(
        "Equal lag × learning rate does not cost alike: mostly the higher rate loses more", fontsize=9
    )
    fig.supxlabel("lag × learning rate", fontsize=8)
    fig.supylabel("accuracy lost to staleness", fontsize=8)
    axes.flat[0].legend(loc="upper left", title="learning rate", fontsize=7, title_fontsize=7)
    return fig


def _curves(ax: Axes, lost: pd.DataFrame) -> None:
    """Draw the median loss against lag times rate, a curve for each rate."""
    for place, ((rate, at_rate), color) in enumerate(zip(lost.groupby("rate"), COLORS, strict=False)):
        low, middle, high = (
            at_rate.groupby("product")["lost"].quantile(np.array([0.25, 0.5, 0.75])).unstack().T.to_numpy()
        )
        x = np.sort(at_rate["product"].unique()) * 1.06 ** (place - 1)
        reach = [middle - low, high - middle]
        ax.errorbar(
            x, middle, reach, color=color, marker="o", markersize=3, lw=1, elinewidth=0.6, label=f"{rate:g}"
        )
    ax.axhline(0.0, color=RULE, linewidth=0.5)
    ax.set_xscale("log")


@figure("lag-and-rate-map", data="lag-and-rate", caption=MAP)
def draw_map(table: pd.DataFrame) -> Figure:
    """Return the three fields of recipe against lag."""
    need(table, COLUMNS)
    common = float(table["learning_rate"].median())
    tuned = held_out(table).groupby(["recipe", "lag"])[ACCURACY].median().unstack()
    tuned = tuned.sort_values(tuned.columns[-1])
    shared = table[table["learning_rate"] == common].groupby(["recipe", "lag"])[ACCURACY].median().unstack()
    gone = table.assign(gone=(table["collapsed"] > 0.5) | (table["diverged"] > 0.5))
    share = gone.groupby(["recipe", "lag"])["gone"].mean().unstack()
    return maps(tuned, shared.loc[tuned.index], share.loc[tuned.index], common)


def held_out(table: pd.DataFrame) -> pd.DataFrame:
    """Return the cells of each run at the rates that are best for their arms in the other run."""
    arm = ["recipe", "lag"]
    assert EXPERIMENT.stop is not None
    fresh = table["seed"] >= EXPERIMENT.stop.fresh
    found = []
    for shown, other in ((table[fresh], table[~fresh]), (table[~fresh], table[fresh])):
        at_rate = other.groupby([*arm, "learning_rate"])[ACCURACY].median().unstack()
        best = at_rate.idxmax(axis=1).rename("own rate")
        joined = shown.join(best, on=arm)
        found.append(joined[joined["learning_rate"] == joined["own rate"]])
    return pd.concat(found)
