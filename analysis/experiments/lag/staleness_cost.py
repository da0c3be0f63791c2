"""What very stale data cost the toy LLM at the stress test's learning rate: REINFORCE and GRPO at lag 128."""

import pandas as pd

from analysis.lab import (
    Evidence,
    Experiment,
    Plot,
    Stop,
    arms,
    happens_more_often,
    happens_mostly,
    median_exceeds,
    paired,
)
from analysis.sweeps.base_runs import TOY
from testbed.config.run import Run, grid

SOURCE = "Zheng et al. (2025), Prosperity before Collapse, arXiv:2510.01161"
OLD = 128


def cells() -> tuple[Run, ...]:
    """REINFORCE and GRPO, on-policy and at lag 128."""
    return grid(TOY, recipe=["reinforce", "grpo"], lag=[0, OLD], seed=[0])


EXPERIMENT = Experiment(
    "staleness-cost",
    question="What do data that are 128 steps old cost, with a clip and without?",
    source=SOURCE,
    differs="a transformer of 26,000 weights on running sums; the learning rate of the stress test",
    cells=cells,
    stop=Stop(),
    keys=("recipe", "lag", "seed"),
    metrics=("accuracy", "best", "start", "collapsed", "collapse_step"),
    figure=Plot(
        "final by setting", x="lag: lag (optimizer steps)", y="accuracy: final accuracy", arm=("recipe",)
    ),
)


def _lost(table: pd.DataFrame) -> pd.DataFrame:
    """Return whether a seed collapsed on old data, a column per recipe."""
    by_recipe = {name: {"recipe": name, "lag": OLD} for name in ("reinforce", "grpo")}
    return arms(table, "collapsed", by_recipe) > 0.5


@EXPERIMENT.claim()
def reinforce_collapses_where_grpo_holds(table: pd.DataFrame) -> Evidence:
    """At lag 128, unclipped REINFORCE collapses on more seeds than clipped GRPO does."""
    lost = _lost(table)
    note = (
        f"reinforce collapsed on {int(lost['reinforce'].sum())}, grpo on {int(lost['grpo'].sum())} of "
        f"{len(lost)} seeds; effect is the share of reinforce among seeds where one of them did"
    )
    return happens_more_often(lost["reinforce"], lost["grpo"], note)


@EXPERIMENT.claim(source=f"{SOURCE}; the share was chosen on a pilot")
def reinforce_collapses_where_grpo_holds_on_most_seeds(table: pd.DataFrame) -> Evidence:
    """At lag 128, unclipped REINFORCE collapses and clipped GRPO does not on more than half of all seeds."""
    lost = _lost(table)
    note = "share of seeds on which reinforce alone collapsed"
    return happens_mostly(lost["reinforce"] & ~lost["grpo"], note)


@EXPERIMENT.claim(source=f"{SOURCE}, figure 1")
def staleness_costs_grpo_accuracy(table: pd.DataFrame) -> Evidence:
    """GRPO ends with lower accuracy at lag 128 than on-policy, on most seeds."""
    grpo = {"recipe": "grpo"}
    lost_N = paired(table, "accuracy", {**grpo, "lag": 0}, {**grpo, "lag": OLD})
    return median_exceeds(lost_N, 0.0, "median over seeds of final accuracy on-policy less that at lag 128")
