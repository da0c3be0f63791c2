"""The arena's tasks: what is learned, for how long, and from which base model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from analysis.sweeps.base_runs import SMALL
from testbed.config.run import Run
from testbed.errors import UserError, unknown

_BASE = replace(SMALL, task_args=(), steps=600, log_every=60)

TASKS: Mapping[str, Run] = MappingProxyType(
    {
        "skills": replace(_BASE, task="three-skills"),
        "sorted": replace(_BASE, task="sorted", task_args=(("digits", 10),), teacher_noise=0.3),
        "guess": replace(_BASE, task="guess", teacher_noise=0.6),
        "hidden-noise": replace(_BASE, task="sorted", teacher_noise=0.45),
        "long-sum": replace(_BASE, task="running-sum", task_args=(("digits", 24),), teacher_noise=0.2),
    }
)
"""By name: a run that the arena gives a recipe, rate, lag and seed."""
LAGS = (64, 256, 0)
LOW, HIGH = 0.5, 0.9
"""Final accuracy of fresh data between which a task has headroom."""


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
