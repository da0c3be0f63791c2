"""Learning rates for VCPO with each of its parts and ALP in each place; its seeds serve nothing else."""

from dataclasses import replace

from analysis.lab import Experiment
from analysis.sweeps.base_runs import SMALL
from analysis.sweeps.tuning import at_rates
from testbed.config.run import Run, grid

NAME = "parts-rates"
KEYS = ("recipe", "recipe_args", "policy_args", "mismatch", "lag")
OLD = 128
VCPO_ARMS = {
    "neither": (0, "group_std", OLD),
    "step rule": (1, "group_std", OLD),
    "baseline": (0, "proxy", OLD),
    "both": (1, "proxy", OLD),
    "on-policy": (1, "proxy", 0),
}
"""ESS share that counts as on-policy (0: no step rule), baseline and lag of each arm."""
DEEP = (("layers", 4), ("width", 16))
PLACES = ("all", "first", "last", "logits")
NOISY = replace(
    SMALL,
    steps=240,
    lag=4,
    policy_args=DEEP,
    mismatch="layer-noise",
    mismatch_args=(("matrices", "all"), ("sigma", 0.2)),
)
"""Rollouts 4 steps old, of weights that are off by a fifth of their root mean square."""


def vcpo_cells() -> tuple[Run, ...]:
    """Return a cell per arm of `vcpo-parts`."""
    return tuple(
        replace(SMALL, recipe="vcpo", lag=lag, recipe_args=(("baseline", baseline), ("ess_reference", rule)))
        for rule, baseline, lag in VCPO_ARMS.values()
    )


def alp_cells() -> tuple[Run, ...]:
    """Return a cell per arm: GRPO, TIS, and ALP with noise in four sets of places."""
    noise = [(*DEEP, ("perturb", 0.3), ("perturb_where", where)) for where in PLACES]
    return (
        *grid(NOISY, recipe=["grpo", "tis"], seed=[0]),
        *(replace(NOISY, recipe="alp", policy_args=args) for args in noise),
    )


def cells() -> tuple[Run, ...]:
    """Every arm of `vcpo-parts`, and of ALP on a noisy engine, at three rates, 2 seeds for tuning."""
    return at_rates((*vcpo_cells(), *alp_cells()), (1e-3, 3e-3, 1e-2))


EXPERIMENT = Experiment(
    NAME,
    question="Which learning rate suits VCPO with each of its parts, and ALP in each place?",
    source="own design: rates are chosen before they are compared",
    cells=cells,
    keys=(*KEYS, "learning_rate", "seed"),
    metrics=("accuracy", "area", "collapsed"),
)
