"""Learning rates for recipes that update several times on a batch; its seeds are used for nothing else."""

from dataclasses import replace

from analysis.lab import Experiment
from analysis.sweeps.base_runs import SMALL
from analysis.sweeps.tuning import at_rates
from testbed.config.run import Arguments, Run

PASSES = 4
BASE = replace(SMALL, steps=200, log_every=4)
ARMS: dict[str, tuple[str, Arguments]] = {
    "GRPO": ("grpo", ()),
    "GRPO x4": ("sfpo", (("alpha", 1.0), ("fast", PASSES - 1))),
    "SFPO": ("sfpo", (("alpha", 0.8), ("fast", PASSES - 1))),
    "R2VPO x4": ("r2vpo", (("passes", PASSES),)),
    "ReMix x4": ("remix", (("passes", PASSES),)),
}
"""Recipe and arguments of each arm. SFPO with alpha 1 pulls nothing back: it is GRPO with so many passes."""


def arm_cells() -> tuple[Run, ...]:
    """Return a cell per arm."""
    return tuple(replace(BASE, recipe=recipe, recipe_args=args) for recipe, args in ARMS.values())


def cells() -> tuple[Run, ...]:
    """GRPO with one pass and four, SFPO, R2VPO and ReMix with four, at three rates, 2 seeds for tuning."""
    return at_rates(arm_cells(), (1e-3, 3e-3, 1e-2))


EXPERIMENT = Experiment(
    "reuse-rates",
    question="Which learning rate suits a recipe that updates four times on every batch?",
    source="own design: rates are chosen before they are compared",
    cells=cells,
    keys=("recipe", "recipe_args", "learning_rate", "seed"),
    metrics=("accuracy", "area", "collapsed", "rollouts_to 0.8"),
)
