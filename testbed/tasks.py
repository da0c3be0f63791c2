"""The catalog of `envs` behind the project's registry: nearest names, checked arguments."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Any

from envs.catalog import worlds
from testbed.config import Run
from testbed.errors import UserError
from testbed.registry import Entry, Registry


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


def check_arguments(cells: Collection[Run]) -> None:
    """Make every task and bind every recipe of a sweep once, so that a wrong name costs no training."""
    from testbed.mismatch import engine
    from testbed.recipes import recipe
    from testbed.staleness import plan_for

    for cell in {(cell.task, cell.task_args, cell.policy): cell for cell in cells}.values():
        task_for(cell)
    for cell in {(cell.staleness, cell.staleness_args, cell.lag): cell for cell in cells}.values():
        plan_for(cell)
    for name, arguments in {(cell.mismatch, cell.mismatch_args) for cell in cells}:
        engine(name, **dict(arguments))
    for name, arguments, policy in {(cell.recipe, cell.recipe_args, cell.policy) for cell in cells}:
        made = recipe[name].bind(**dict(arguments))()
        if made.demonstrations and policy == "tabular":
            raise UserError(
                f"recipe '{name}' needs demonstrations, and a tabular world has no teacher; "
                "take a token task with policy 'toy'."
            )
