"""Everything that can be refused before the first step, all at once."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from testbed.config.pack import RAGGED
from testbed.config.run import Run
from testbed.errors import UserError
from testbed.worlds.tasks import task_for

if TYPE_CHECKING:
    from testbed.recipes.composition import Recipe


def check_arguments(cells: Collection[Run]) -> None:
    """Make every task and bind every recipe of a sweep once, so that a wrong name costs no training."""
    from testbed.staleness import check_past, plan_for
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
        check_past(cell, plan_for(cell))
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
        made = made.hand_over.recipe if made.hand_over else None


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
