"""A toy LLM learns from data of one exact lag: which recipes hold, which collapse."""

from __future__ import annotations

import pandas as pd

from analysis.claims import Evidence, on_most
from analysis.collapse import cells as outcomes
from analysis.comparisons import arms, must_exceed, must_happen_more_often, paired
from analysis.condense import STALENESS, condense
from analysis.experiment import Experiment
from analysis.load import Table
from analysis.starting_runs import TOY
from testbed.config.run import Run, grid


def cells() -> tuple[Run, ...]:
    """Five recipes at four lags, 2 seeds."""
    return grid(
        TOY, recipe=["reinforce", "grpo", "gspo", "m2po", "vcpo"], lag=[0, 16, 64, 128], seed=range(2)
    )


def curves(rows: pd.DataFrame) -> Table:
    """Return accuracy and ESS per recipe, lag, seed and step."""
    return condense(rows)["staleness"]


EXPERIMENT = Experiment(
    "staleness",
    question="Which recipes hold, and which collapse, as the data that they learn from grow old?",
    source="Zheng et al. (2025), Prosperity before Collapse, arXiv:2510.01161",
    differs="a transformer of 26,000 weights on running sums in place of large language models",
    cells=cells,
    seeds=range(8),
    from_rows=curves,
    keys=("recipe", "lag", "seed", "step"),
    metrics=STALENESS,
    figure="staleness",
    see=("token-ess-hides-collapse",),
)


@EXPERIMENT.claim(
    "reinforce-collapses-where-grpo-holds",
    source="Zheng et al. (2025), Prosperity before Collapse, arXiv:2510.01161",
    kind="statistical",
    statement="At the largest lag, unclipped REINFORCE collapses on more seeds than clipped GRPO does.",
)
def reinforce_collapses(table: pd.DataFrame) -> Evidence:
    """Return the McNemar evidence over seeds, which share their random numbers between the two recipes."""
    lost, lag = _lost_at_the_largest_lag(table)
    first, second = (lost[recipe] > 0.5 for recipe in ("reinforce", "grpo"))
    note = (
        f"lag {lag}: reinforce collapsed on {int(first.sum())}, grpo on "
        f"{int(second.sum())} of {len(lost)} seeds; effect is the difference among seeds where one of them "
        "did"
    )
    return must_happen_more_often(lost["reinforce"], lost["grpo"], note)


@EXPERIMENT.claim(
    "reinforce-collapses-where-grpo-holds-on-most-seeds",
    source="as reinforce-collapses-where-grpo-holds; the share was chosen after the table was seen",
    kind="statistical",
    statement=(
        "At the largest lag, unclipped REINFORCE collapses and clipped GRPO does not on more than half of "
        "all seeds."
    ),
)
def reinforce_collapses_mostly(table: pd.DataFrame) -> Evidence:
    """Return the binomial evidence over seeds."""
    lost, lag = _lost_at_the_largest_lag(table)
    alone = (lost["reinforce"] > 0.5) & ~(lost["grpo"] > 0.5)
    return on_most(list(alone), f"share of seeds on which reinforce alone collapsed at lag {lag}, less 1/2")


def _lost_at_the_largest_lag(table: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Return `collapsed` of every seed, a column per recipe, and the lag."""
    found = outcomes(table)
    worst = found[found["lag"] == found["lag"].max()]
    by_recipe = {name: {"recipe": name} for name in ("reinforce", "grpo")}
    return arms(worst, "collapsed", by_recipe), int(worst["lag"].max())


@EXPERIMENT.claim(
    "staleness-costs-grpo-accuracy",
    source="Zheng et al. (2025), Prosperity before Collapse, arXiv:2510.01161, figure 1",
    kind="statistical",
    statement="GRPO ends with lower accuracy at the largest lag than at the smallest one.",
)
def staleness_costs(table: pd.DataFrame) -> Evidence:
    """Return the mean over seeds of final accuracy at the smallest lag minus that at the largest lag."""
    grpo = table[table["recipe"] == "grpo"]
    lags = sorted(set(grpo["lag"]))
    if len(lags) < 2:
        return must_exceed([], 0.0, "no grpo cells at two lags")
    lost_N = paired(outcomes(grpo), "final", {"lag": lags[0]}, {"lag": lags[-1]})
    note = f"mean over seeds of final accuracy at lag {lags[0]} minus lag {lags[-1]}"
    return must_exceed(lost_N, 0.0, note)
