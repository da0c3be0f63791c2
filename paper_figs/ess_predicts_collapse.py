"""Early signs of a collapse: the AUROC of each, over every cell of the phase diagram."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.judging.auroc import clustered_auroc
from analysis.palette import BLUE, INK, RULE, VERMILION
from analysis.tables.outcomes import need
from paper_figs.base import PAGE, figure

SIGNS = {
    "log10 ess": (-1, "Kish ESS"),
    "log10 max-weight ess": (-1, "max-weight ESS"),
    "kl": (1, "KL to the sampler"),
    "hill": (1, "Hill tail index"),
    "clip share": (1, "clip share"),
    "entropy": (-1, "entropy"),
    "log10 gradient norm": (1, "gradient norm"),
    "lag times rate": (1, "lag × learning rate"),
}
"""Sign with which each warns, and its name. The last is no sign: it is known before the run."""
CLUSTER = ["recipe", "lag", "learning_rate"]
CAPTION = (
    "Does an early sign foretell a collapse? Left: chance that a run of the phase diagram which collapses "
    "after step 200 had the more alarming mean over its first 200 steps than one which does not (AUROC); "
    "bars: 95% bootstrap over cells (recipe, lag, learning rate), whose seeds stay together; the last row "
    "is what was known before the run. Runs that collapsed earlier are left out. Right: Kish ESS in the "
    "first 200 steps against the step of the collapse; runs that do not collapse stand above the line."
)


@figure("ess-predicts-collapse", data="ess-predicts-collapse", caption=CAPTION)
def draw(table: pd.DataFrame) -> Figure:
    """Return the page-wide figure; columns of the experiment's table."""
    need(
        table, [*CLUSTER, "seed", "collapsed", "collapse_step", *(n for n in SIGNS if n != "lag times rate")]
    )
    frame = table.assign(**{"lag times rate": table["lag"] * table["learning_rate"]})
    fig = Figure(figsize=(PAGE, 2.6))
    left, right = fig.subplots(1, 2, width_ratios=(1.1, 1))
    _areas(left, frame)
    _when(right, frame)
    return fig


def _areas(ax: Axes, frame: pd.DataFrame) -> None:
    """Draw the AUROC of every sign with its interval."""
    for place, (column, (sign, _)) in enumerate(SIGNS.items()):
        scored = frame.assign(score=sign * frame[column])
        found = clustered_auroc(scored, "score", "collapsed", CLUSTER)
        reach = [[found.center - found.low], [found.high - found.center]]
        color = RULE if column == "lag times rate" else BLUE
        ax.errorbar([found.center], [place], xerr=reach, color=color, marker="o", markersize=4, elinewidth=1)
        ax.text(1.02, place, f"{found.center:.2f}", va="center", fontsize=7, color=INK)
    ax.axvline(0.5, color=RULE, linewidth=0.6)
    ax.set_yticks(range(len(SIGNS)), [name for _, name in SIGNS.values()])
    ax.set_ylim(len(SIGNS) - 0.5, -0.5)
    ax.set_xlim(0, 1)
    ax.set_xlabel("AUROC for a later collapse")
    ax.grid(visible=False, axis="y")


def _when(ax: Axes, frame: pd.DataFrame) -> None:
    """Draw when the runs collapsed against their early ESS."""
    lost = frame["collapsed"] > 0.5
    last = float(frame["collapse_step"].max()) if lost.any() else 1.0
    ax.plot(
        frame.loc[lost, "log10 ess"], frame.loc[lost, "collapse_step"], "X", color=VERMILION, markersize=4
    )
    kept = frame.loc[~lost, "log10 ess"]
    place = last * (
        1.1 + 0.15 * (frame.loc[~lost, "seed"] - frame["seed"].min()) / max(frame["seed"].nunique(), 1)
    )
    ax.plot(kept, place, ".", color=BLUE, markersize=3, alpha=0.4)
    ax.axhline(last * 1.05, color=RULE, linewidth=0.6)
    ax.locator_params(axis="x", nbins=5)
    ax.set_yticks([step for step in ax.get_yticks() if 0 < step <= last + 1])
    ax.set_xlabel("log10 Kish ESS share, first 200 steps")
    ax.set_ylabel("step of the collapse")
