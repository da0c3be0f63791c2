"""Recipes: an advantage, an objective, an aggregation and a step-size rule under one name.

A recipe is a function whose keyword-only arguments are what people tune; `Run.recipe_args` sets them.
Every objective is a recipe too, in a default composition, and so is `path/to/file.py:function`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from testbed.errors import unknown
from testbed.objectives import objective
from testbed.recipes.composition import Recipe, pairs
from testbed.registry import Entry, Registry


@dataclass(frozen=True)
class Composed(Entry):
    """An objective as a recipe: group-standardized advantage, mean over tokens."""

    @property
    def defaults(self) -> dict[str, Any]:
        """The hyperparameters of the objective, and those of the composition."""
        return {"advantage": "group_std", "aggregation": "token_mean", **objective[self.name].defaults}

    def bind(self, **hyper: Any) -> Callable[[], Recipe]:
        """Return a function that makes the recipe; an unknown hyperparameter raises UserError."""
        given = {**self.defaults, **hyper}
        advantage, aggregation = given.pop("advantage"), given.pop("aggregation")
        objective[self.name].bind(**given)
        chosen = {name: value for name, value in hyper.items() if name in given}
        length = 1.0 if aggregation == "constant" else 0.0
        return lambda: Recipe(advantage, self.name, aggregation, length, objective_args=pairs(**chosen))


class Recipes(Registry):
    """Named recipes, and behind them every objective in its default composition."""

    def __getitem__(self, name: str) -> Entry:
        if name in self._load():
            return super().__getitem__(name)
        if ".py:" in name or name in objective:
            entry = objective[name]
            return Composed(name, entry.function, entry.source, entry.promises)
        raise unknown("recipe", name, self.names())

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in objective

    def names(self) -> list[str]:
        """Return every name that can be looked up: recipes, then the objectives without one of their name."""
        return [*self, *(name for name in objective if not super(Recipes, self).__contains__(name))]


recipe = Recipes("recipe", package="testbed.recipes")

__all__ = ["Recipe", "recipe"]
