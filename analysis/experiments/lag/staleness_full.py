"""The experiment staleness with every recipe of the main figures, more lags and more seeds."""

from analysis.lab import Experiment
from analysis.sweeps.base_runs import TOY
from testbed.config.run import Run, grid


def cells() -> tuple[Run, ...]:
    """Nine recipes at five lags, 8 seeds."""
    return grid(
        TOY,
        recipe=["reinforce", "grpo", "dr_grpo", "gspo", "cispo", "m2po", "minpro", "topr", "vcpo"],
        lag=[0, 4, 16, 64, 128],
        seed=range(8),
    )


EXPERIMENT = Experiment(
    "staleness-full",
    question="Which of nine recipes hold as the data that they learn from grow old?",
    source="Zheng et al. (2025), Prosperity before Collapse, arXiv:2510.01161",
    differs="a transformer of 26,000 weights on running sums in place of large language models",
    cells=cells,
)
