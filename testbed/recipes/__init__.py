"""Recipes: an advantage, an objective, an aggregation and a step-size rule under one name.

A recipe is a function whose keyword-only arguments are what people tune; `Run.recipe_args` sets them.
Every objective is a recipe too, in a default composition, and so is `path/to/file.py:function`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from testbed.errors import unknown
from testbed.objectives import objective
from testbed.recipes.composition import Recipe, pairs
from testbed.registry import Entry, Registry


@dataclass(frozen=True)
class Composed(Entry):
    """An objective as a recipe: in the composition of its base recipe, or a default one.

    `gmpo@verl` is the recipe gmpo with that objective. What has no recipe gets the group-standardized
    advantage and the mean over tokens.
    """

    @property
    def defaults(self) -> dict[str, Any]:
        """The hyperparameters of the objective, and those of the composition."""
        made = self._made()
        return {"advantage": made.advantage, "aggregation": made.aggregation, **objective[self.name].defaults}

    def bind(self, **hyper: Any) -> Callable[[], Recipe]:
        """Return a function that makes the recipe; an unknown hyperparameter raises UserError."""
        own = {name: value for name, value in hyper.items() if name not in ("advantage", "aggregation")}
        objective[self.name].bind(**own)
        changed: dict[str, Any] = {"objective_args": pairs(**own)}
        if "advantage" in hyper:
            changed |= {"advantage": hyper["advantage"], "advantage_args": ()}
        if "aggregation" in hyper:
            changed |= {"aggregation": hyper["aggregation"]}
            changed |= {"length": 1.0 if hyper["aggregation"] == "constant" else 0.0}
        return lambda: replace(self._made(), **changed)

    def _made(self) -> Recipe:
        base = recipe.get_named(self.base) if self.base != self.name else None
        if base is None or base.bind()().objective != self.base:
            return Recipe("group_std", self.name, "token_mean")
        return replace(base.bind()(), objective=self.name, objective_args=())


class Recipes(Registry):
    """Named recipes, and behind them every objective in its default composition."""

    def __getitem__(self, name: str) -> Entry:
        if name in self._load():
            return super().__getitem__(name)
        if ".py:" in name or name in objective:
            entry = objective[name]
            return Composed(name, entry.function, entry.source, entry.promises)
        raise unknown("recipe", name, self.names())

    def get_named(self, name: str) -> Entry | None:
        """Return the recipe of that name, None where only an objective has it."""
        return self._load().get(name)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in objective

    def names(self) -> list[str]:
        """Return every name that can be looked up: recipes, then the objectives without one of their name."""
        return [*self, *(name for name in objective if not super(Recipes, self).__contains__(name))]


recipe = Recipes("recipe", package="testbed.recipes")

__all__ = ["Recipe", "recipe"]
