"""The catalog of `envs` behind the project's registry: nearest names, checked arguments."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import TYPE_CHECKING, Any

from envs.catalog import worlds
from testbed.config import Run
from testbed.errors import UserError
from testbed.packs import RAGGED
from testbed.registry import Entry, Registry

if TYPE_CHECKING:
    from testbed.recipes.composition import Recipe


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
    from testbed.staleness import plan_for
    from testbed.worlds.generation import engine_of

    world, dials = ("task", "task_args", "policy"), ("staleness", "staleness_args", "lag")
    limits = ("age_limit", "too_old")
    for cell in _distinct(cells, *world):
        task_for(cell)
    for cell in _distinct(cells, *world, *dials, *limits, "prompts", "steps"):
        if check := getattr(plan_for(cell), "check", None):
            check(cell)
    for cell in _distinct(cells, "policy", "mismatch", "mismatch_args", *dials):
        engine_of(cell)
    for cell in _distinct(cells, "policy", "recipe", "recipe_args", "anchor", "anchor_args", *limits):
        _check_recipe(cell)


def _distinct(cells: Collection[Run], *fields: str) -> Collection[Run]:
    """Return one cell for every combination of values that the fields take."""
    return {tuple(getattr(cell, name) for name in fields): cell for cell in cells}.values()


def _check_recipe(cell: Run) -> None:
    """Raise UserError where a recipe has no use for the anchor, or mixes groups into unfit batches."""
    from testbed.anchors import build_anchor
    from testbed.recipes import recipe

    made = recipe[cell.recipe].bind(**dict(cell.recipe_args))()
    build_anchor(made, cell.anchor, cell.anchor_args)
    while made is not None:
        _check_mixing(made, cell)
        made = made.then


def _check_mixing(made: Recipe, cell: Run) -> None:
    if made.demonstrations and cell.policy == "tabular":
        raise UserError(
            f"recipe '{cell.recipe}' needs demonstrations, and a tabular world has no teacher; "
            "take a token task with policy 'toy'."
        )
    if (made.demonstrations or made.replay) and cell.age_limit >= 0 and cell.too_old in RAGGED:
        raise UserError(
            f"recipe '{cell.recipe}' replaces a share of every batch, but too_old '{cell.too_old}' with "
            f"age_limit {cell.age_limit} leaves batches of any size; expected too_old wait or discard."
        )
