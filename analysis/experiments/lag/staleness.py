"""A toy LLM learns from data of one exact lag, all recipes at one learning rate: accuracy and ESS."""

import pandas as pd

from analysis.lab import Experiment
from analysis.sweeps.base_runs import TOY
from analysis.tables.committed import Table
from analysis.tables.condensed import STALENESS, condense
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
    question="Which recipes hold, and which collapse, as the data that they learn from grow old?",
    source="Zheng et al. (2025), Prosperity before Collapse, arXiv:2510.01161",
    differs=(
        "a transformer of 26,000 weights on running sums in place of large language models; one learning "
        "rate for all, which is a stress test and no ranking of methods"
    ),
    cells=cells,
    seeds=range(8),
    from_rows=curves,
    keys=("recipe", "lag", "seed", "step"),
    metrics=STALENESS,
    figure="staleness",
    see=("token-ess-hides-collapse", "staleness-costs-grpo-accuracy"),
)
