"""The catalog of `envs` behind the project's registry: nearest names, checked arguments."""

from __future__ import annotations

from collections.abc import Iterable
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


def check_arguments(cells: Iterable[Run]) -> None:
    """Make every task and bind every recipe of a sweep once, so that a wrong name costs no training."""
    from testbed.recipes import recipe

    seen: set[object] = set()
    for cell in cells:
        for part in ((cell.task, cell.task_args, cell.policy), (cell.recipe, cell.recipe_args)):
            if part in seen:
                continue
            seen.add(part)
            if len(part) == 2:
                recipe[cell.recipe].bind(**dict(cell.recipe_args))()
            else:
                _check_task(cell)


def _check_task(cell: Run) -> None:
    task = build_task(cell.task, **dict(cell.task_args))
    tabular = hasattr(task, "simulate")
    if cell.policy == "tabular" and not tabular:
        raise UserError(
            f"task '{cell.task}' is a token task, which has no table of states. Set policy to 'toy' or 'hf', "
            f"or take the token tree: task 'tree' with task_args.task={cell.task}."
        )
    if cell.policy != "tabular" and tabular:
        raise UserError(f"task '{cell.task}' is a tabular world; set policy to 'tabular'.")
