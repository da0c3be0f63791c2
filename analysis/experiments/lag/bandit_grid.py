"""A thousand cells that take seconds: four recipes on bandits at ten lags, to try the executors."""

from analysis.lab import Experiment
from testbed.config.run import Run, grid


def cells() -> tuple[Run, ...]:
    """Four recipes at ten lags, 25 seeds."""
    return grid(
        Run(task="bandit", prompts=32, group=8, steps=500, learning_rate=0.3),
        recipe=["reinforce", "grpo", "m2po", "vcpo"],
        lag=[0, 1, 2, 4, 8, 16, 32, 64, 128, 256],
        seed=range(25),
    )


EXPERIMENT = Experiment(
    question="At which lag does each of four recipes stop learning a contextual bandit?",
    source="this project", cells=cells,
)  # fmt: skip
