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
"""By name: a run that the arena gives a recipe, rate, lag and seed."""
LAGS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "sorted": (0, 16, 64),
        "sums": (0, 16, 64),
        "guess": (0, 64, 256),
        "length": (0, 64, 256),
        "long": (0, 256),
    }
)
"""Optimizer steps; 256 only where that is less than two thirds of the budget."""
LOW, HIGH = 0.5, 0.9
"""Final accuracy of fresh data between which a task has headroom."""


def queue() -> list[tuple[str, int]]:
    """Return task and lag in the order of work: fresh data, lag 64, the longest lag, the shortest."""
    return [(name, lag) for lag in (0, 64, 256, 16) for name in TASKS if lag in LAGS[name]]


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
