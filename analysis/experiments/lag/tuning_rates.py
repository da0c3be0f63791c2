"""Tuning runs, on other seeds, for the experiments that give each arm its own learning rate."""

from analysis.experiment import EXPERIMENTS
from analysis.lab import Experiment
from testbed.config.run import Run

NAME = "tuning-rates"


def cells() -> tuple[Run, ...]:
    """Every arm of these experiments at three or four rates, on its tuning seeds."""
    tuned = [each for each in EXPERIMENTS.values() if each.tuned is not None and each.tuned.table == NAME]
    found = (cell for each in tuned if each.tuned and each.arms for cell in each.tuned.tried(each.arms()))
    return tuple(dict.fromkeys(found))


EXPERIMENT = Experiment(
    question="Which learning rate suits each arm: by recipe, clip, passes, baseline, anchor and age of data?",
    source="design of this project: rates are chosen before arms are compared",
    cells=cells,
    keys=(
        *("task", "task_args", "recipe", "recipe_args", "policy_args", "mismatch", "anchor", "staleness"),
        *("staleness_args", "lag", "steps", "learning_rate", "seed"),
    ),
    metrics=("accuracy", "area", "collapsed"),
)
