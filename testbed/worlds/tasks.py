"""The catalog of `envs` behind the project's registry: nearest names, checked arguments."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from envs.catalog import worlds
from testbed.config.run import Run
from testbed.errors import UserError
from testbed.registry import Entry, Registry

if TYPE_CHECKING:
    pass


@cache
def tasks() -> Registry:
    """Return the registry of every world and token task in `envs`."""
    registry = Registry("task")
    for name, constructor in worlds().items():
        registry.add(Entry(name, constructor, source=constructor.__module__))
    return registry


def build_task(name: str, **arguments: Any) -> Any:
    """Return a world or token task; an unknown name or argument, or a refused value, raises UserError."""
    build = tasks()[name].bind(**arguments)
    try:
        return build()
    except (ValueError, TypeError) as error:
        raise UserError(f"task '{name}' cannot be made with {arguments}: {error}") from error


def task_for(run: Run) -> Any:
    """Return the run's task; raise UserError when its policy cannot act in it."""
    task = build_task(run.task, **dict(run.task_args))
    tabular = hasattr(task, "simulate")
    if run.policy == "tabular" and not tabular:
        raise UserError(
            f"task '{run.task}' is a token task, which has no table of states. Set policy to 'toy' or 'hf', "
            f"or take the token tree: task 'tree' with task_args.task={run.task}."
        )
    if run.policy != "tabular" and tabular:
        raise UserError(f"task '{run.task}' is a tabular world; set policy to 'tabular'.")
    return task
