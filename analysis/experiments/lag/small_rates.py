"""Learning rates for recipes at a small shape, by lag and width; its seeds serve nothing else."""

from dataclasses import replace

from analysis.lab import Experiment
from analysis.sweeps.base_runs import SMALL
from analysis.sweeps.tuning import at_rates
from testbed.config.run import Run, grid

NAME = "small-rates"
OLD, VERY_OLD = 64, 256
ON_POLICY = ("grpo", "m2po", "oapl")
PAIRS = ("online_dpo", "rloo", "grpo")
KEYS = ("recipe", "policy_args", "lag")
WIDE = (("width", 32),)


def very_old() -> tuple[Run, ...]:
    """Return a cell per recipe at lag 256, and on-policy ones of three recipes."""
    recipes = (*ON_POLICY, "vcpo", "topr", "asymre")
    return (*grid(SMALL, recipe=ON_POLICY, lag=[0]), *grid(SMALL, recipe=recipes, lag=[VERY_OLD]))


def pairs() -> tuple[Run, ...]:
    """Return a cell per loss at width 16, and online DPO at 32; on-policy and at lag 64."""
    wide = replace(SMALL, recipe="online_dpo", policy_args=WIDE)
    return (*grid(SMALL, recipe=PAIRS, lag=[0, OLD]), *grid(wide, lag=[0, OLD]))


def cells() -> tuple[Run, ...]:
    """Every arm that `very-old-data` compares, 4 rates, 2 seeds."""
    arms = dict.fromkeys((*very_old(), *pairs(), replace(SMALL, recipe="oapl", lag=OLD)))
    return at_rates(arms, (3e-4, 1e-3, 3e-3, 1e-2))


EXPERIMENT = Experiment(
    NAME,
    question="Which learning rate suits each recipe at a small shape, by lag and width?",
    source="own design: rates are chosen before they are compared",
    cells=cells,
    keys=(*KEYS, "learning_rate", "seed"),
    metrics=("accuracy", "area", "collapsed"),
)
