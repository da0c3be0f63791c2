"""Learning rates for windows on 48 tokens and for periodic weight sync; its seeds serve nothing else."""

from __future__ import annotations

from dataclasses import replace

from analysis.experiments.lag.class_rates import COPY, LITE, LONG, SYNC, arms
from analysis.lab import Experiment, Recipes
from analysis.sweeps.tuning import at_rates
from testbed.config.run import Run

NAME = "window-and-sync-rates"
KEYS = ("task", "recipe", "recipe_args", "lag")
WINDOWS: Recipes = {
    "CTPO": ("ctpo", ()),
    "constant window": ("ctpo", (("p", 0),)),
    "GRPO": ("grpo", ()),
    "GSPO": ("gspo", ()),
}
"""CTPO's window as wide as the root of the position, and as wide beside its rivals."""
SYNC_LAGS = (1, 16, 64, 400)
"""Mean ages; weights are sent every 3, 33, 129 and 801 steps."""
SYNC_STEPS = 2 * (2 * SYNC_LAGS[-1] + 1)
"""Two of the longest periods."""


def window_cells() -> tuple[Run, ...]:
    """Return a cell per arm of `long-windows`."""
    return arms(replace(COPY[LONG], lag=64, steps=240), WINDOWS)


def sync_cells() -> tuple[Run, ...]:
    """Return a cell per arm of `periodic-sync`."""
    base = replace(LITE, staleness="periodic", steps=SYNC_STEPS)
    return tuple(run for lag in SYNC_LAGS for run in arms(replace(base, lag=lag), SYNC))


def rates(run: Run) -> tuple[float, ...]:
    """Return the rates that an arm is tried at."""
    if run.steps == SYNC_STEPS:
        return (3e-4, 1e-3, 3e-3)
    return (1e-3, 3e-3, 1e-2) if run.recipe == "grpo" else (3e-3, 1e-2, 3e-2)


def cells() -> tuple[Run, ...]:
    """Every arm at three rates, 2 seeds for tuning."""
    every = (*window_cells(), *sync_cells())
    return tuple(cell for run in every for cell in at_rates([run], rates(run)))


EXPERIMENT = Experiment(
    NAME,
    question="Which learning rate suits windows on long responses, and which periodic weight sync?",
    source="own design: rates are chosen before they are compared",
    cells=cells,
    keys=(*KEYS, "learning_rate", "seed"),
    metrics=("accuracy", "area", "collapsed", "rollouts_to 0.8"),
)
