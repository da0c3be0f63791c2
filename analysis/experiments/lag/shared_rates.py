"""Learning rates for averaged anchors and for N updates per generation; its seeds serve nothing else."""

from dataclasses import replace

from analysis.lab import Experiment
from analysis.sweeps.base_runs import SMALL
from analysis.sweeps.tuning import at_rates
from testbed.config.run import Run

NAME = "shared-rates"
KEYS = ("recipe", "anchor", "staleness", "staleness_args", "lag")
OLD = 16
UPDATES = (2, 4, 8)


def anchor_cells() -> tuple[Run, ...]:
    """Return PPO with four passes on data 16 steps old, two anchors; and on partial rollouts, three."""
    base = replace(SMALL, steps=200, recipe="decoupled")
    partial = replace(base, staleness="partial", staleness_args=(("tokens", 1),))
    return (
        *(replace(base, lag=OLD, anchor=name) for name in ("behavior", "ewma")),
        *(replace(partial, anchor=name) for name in ("snapshot", "ewma", "missing")),
    )


def rapid_cells() -> tuple[Run, ...]:
    """Return on-policy REINFORCE, RAPID with N updates per generation, and REINFORCE with most of them."""
    several = [
        replace(SMALL, staleness="periodic", staleness_args=(("period", n),), lag=n // 2) for n in UPDATES
    ]
    return (
        replace(SMALL, recipe="reinforce"),
        *(replace(run, recipe="rapid") for run in several),
        replace(several[-1], recipe="reinforce"),
    )


def cells() -> tuple[Run, ...]:
    """Every arm of `averaged-anchor` and `rapid-updates`, 3 rates, 2 seeds for tuning."""
    return at_rates((*anchor_cells(), *rapid_cells()), (1e-3, 3e-3, 1e-2))


EXPERIMENT = Experiment(
    NAME,
    question="Which learning rate suits each anchor, number of updates and correction of skipped layers?",
    source="own design: rates are chosen before they are compared",
    cells=cells,
    keys=(*KEYS, "learning_rate", "seed"),
    metrics=("accuracy", "area", "collapsed"),
)
