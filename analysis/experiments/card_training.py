"""Part 3 of a report card: every objective on the toy LLM, on fresh, old and frozen data."""

from __future__ import annotations

from dataclasses import replace

from analysis.experiment import Experiment
from analysis.starting_runs import TOY
from testbed.config.run import Run, grid

NAME = "card-training"
RATE = 1e-3
"""The common learning rate."""
SEEDS = range(4)

BASE = replace(TOY, log_every=20)

ARMS: dict[str, Run] = {
    "on-policy": replace(BASE, lag=0, learning_rate=RATE),
    "lag 64": replace(BASE, lag=64, learning_rate=RATE),
    "offline": replace(BASE, lag=BASE.steps, learning_rate=RATE),
}
"""What an objective is trained on; its recipe and the seed are filled in. Offline: all data come from the
first weights."""

KEYS = ("recipe", "staleness", "lag", "learning_rate", "seed")
METRICS = ("accuracy", "best", "start", "area", "collapsed", "steps_to 0.5")


def judged() -> tuple[str, ...]:
    """Return the objectives of papers that are losses by themselves: no variants, no terms, no turns."""
    from testbed.objectives import objective

    return tuple(
        name
        for name in objective
        if "@" not in name
        and objective[name].family != "terms"
        and "turn" not in objective[name].promises["reads"]
    )


def cells_of(names: tuple[str, ...]) -> tuple[Run, ...]:
    """Return every arm and seed of these recipes; an objective stands for its paper's recipe."""
    return tuple(cell for arm in ARMS.values() for cell in grid(arm, recipe=list(names), seed=list(SEEDS)))


def cells() -> tuple[Run, ...]:
    """Every objective of the registry that is a loss by itself, three arms, 4 seeds, 260 steps."""
    return cells_of(judged())


EXPERIMENT = Experiment(
    NAME,
    question="How does every objective train on fresh, old and frozen data, at one learning rate?",
    source="papers of the objectives, in docs/objectives.md; the comparison is this project's",
    differs="a transformer of 26,000 weights on running sums; few seeds, so that whole rows are compared",
    cells=cells,
    keys=KEYS,
    metrics=METRICS,
)
