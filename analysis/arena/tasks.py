"""The arena's tasks: what is learned, for how long, and from which base model."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from analysis.sweeps.base_runs import SMALL
from testbed.config.run import Run
from testbed.errors import UserError, unknown

_BASE = replace(SMALL, task_args=(), prompts=4)

TASKS: Mapping[str, Run] = MappingProxyType(
    {
        "sorted": replace(
            _BASE, task="sorted", task_args=(("digits", 10),), teacher_noise=0.3, steps=300, log_every=30
        ),
        "sums": replace(
            _BASE, task="running-sum", task_args=(("digits", 16),), teacher_noise=0.3, steps=200, log_every=20
        ),
        "guess": replace(_BASE, task="guess", teacher_noise=0.6, steps=600, log_every=60),
        "length": replace(_BASE, task="length", prompts=8, teacher_noise=0.5, steps=400, log_every=40),
        "long": replace(
            _BASE, task="sorted", task_args=(("digits", 14),), teacher_noise=0.3, steps=900, log_every=90
        ),
    }
)
"""By name: a run to which the arena adds recipe, rate, lag and seed."""
LAGS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "sorted": (0, 1, 16, 64),
        "sums": (0, 1, 16, 64),
        "guess": (0, 64, 256),
        "length": (0, 64, 256),
        "long": (0, 64, 256, 400),
    }
)
"""Optimizer steps; 256 and 400 only where that is less than two thirds of the budget."""
PIPELINE, NEAR = -1, 16
"""Name of the ages of PIPELINES among lags, and the constant lag whose settings they use."""
PIPELINES = (
    "slots=208 engines=8 sigma=1 group=8 batch=32 train_time=2 "
    "in_flight=true queue_rule=drop-oldest max_age=40"
)
"""Design of `testbed pipeline`: running responses go on with new weights, groups older than 40 updates are
dropped; ages from 3 to 40, mean 16 over the 200 and 300 steps of `sums` and `sorted`."""
PIPELINE_SEEDS = 16
"""Pipeline of each run at PIPELINE."""
LOW, HIGH = 0.5, 0.9
"""Range of the final accuracy on fresh data within which a task has headroom."""


def queue() -> list[tuple[str, int]]:
    """Return task and lag in the order of work: fresh data, lag 64, then what was added later."""
    return [(name, lag) for lag in (0, 64, 256, 16, 400, 1) for name in TASKS if lag in LAGS[name]]


def aged(base: Run, lag: int, seed: int) -> Run:
    """Return the run at a lag, or at PIPELINE, where each seed has its own pipeline; see `lag_of`."""
    if lag != PIPELINE:
        return replace(base, lag=lag, seed=seed)
    words = (("design", PIPELINES), ("seed", seed), ("token", "first"))
    return replace(base, staleness="pipeline", staleness_args=words, seed=seed)


def tuned_at(lag: int) -> int:
    """Return the constant lag whose settings the arms use at a lag."""
    return NEAR if lag == PIPELINE else lag


def lag_of(run: Run) -> int:
    """Return the lag that `aged` was called with."""
    return PIPELINE if run.staleness == "pipeline" else run.lag


def shown(lag: int) -> str:
    """Return a lag as users read and write it."""
    return "pipeline" if lag == PIPELINE else str(lag)


def lag_from(text: str) -> int:
    """Return the lag of `shown`; raise UserError for anything else."""
    if text == shown(PIPELINE):
        return PIPELINE
    if not text.isdecimal():
        raise UserError(f"Lag is '{text}', expected optimizer steps, as in 64, or {shown(PIPELINE)}.")
    return int(text)


def task(name: str) -> Run:
    """Return the task's run; raise UserError for a name that the arena lacks."""
    if name not in TASKS:
        raise unknown("arena task", name, TASKS)
    return TASKS[name]


def refuse_without_headroom(name: str, fresh: float) -> None:
    """Raise UserError unless fresh data end between LOW and HIGH on the task."""
    if not LOW <= fresh <= HIGH:
        raise UserError(
            f"Task '{name}' has no headroom: fresh data end at {fresh:.2f}, expected {LOW:g} to {HIGH:g}. "
            "Choose another task."
        )
