"""Recipes: an advantage, an objective, an aggregation and a step-size rule under one name.

A recipe is a function; its keyword-only arguments are what people tune, and `Run.recipe_args` sets them.
Every objective is also a recipe, in a default composition, and so is `path/to/file.py:function`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from testbed.config.argument_types import wrong_types
from testbed.errors import refuse, unknown
from testbed.objectives import objective
from testbed.recipes.composition import Recipe, StepRule, pairs
from testbed.registry import Entry, Registry
from testbed.user_files import in_a_file

SETTINGS = ("advantage", "aggregation")
RULES = tuple(item.name for item in fields(StepRule))
"""Parts of the composition that `recipe_args` sets, and fields of the step rule."""


@dataclass(frozen=True)
class Registered(Entry):
    """A named recipe; its advantage and aggregation can be replaced too."""

    def bind(self, **hyper: Any) -> Callable[[], Recipe]:
        """Return a function that makes the recipe; an unknown hyperparameter raises UserError."""
        free = (name for name in SETTINGS if name not in self.defaults)
        settings = {name: str(hyper[name]) for name in free if name in hyper}
        make = super().bind(**{name: value for name, value in hyper.items() if name not in settings})
        return lambda: replace(make(), **_composed(settings)) if settings else make()


def _composed(settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a recipe that change with its advantage and aggregation."""
    changed: dict[str, Any] = {}
    if "advantage" in settings:
        changed |= {"advantage": settings["advantage"], "advantage_args": ()}
    if "aggregation" in settings:
        changed |= {"aggregation": settings["aggregation"]}
        # Aggregation "constant" divides token sums by a length; 1 leaves them as they are.
        changed |= {"length": 1.0 if settings["aggregation"] == "constant" else 0.0}
    return changed


@dataclass(frozen=True)
class Composed(Entry):
    """An objective as a recipe: in the composition of its base recipe, or a default one.

    `gmpo@verl` is the recipe gmpo with that objective. An objective without a recipe gets the
    group-standardized advantage and the mean over tokens.
    """

    @property
    def defaults(self) -> dict[str, Any]:
        """The hyperparameters of the objective, and those of the composition."""
        made = self._made()
        rule = made.step_rule
        settings = {name: getattr(made, name) for name in SETTINGS}
        rules = {name: getattr(rule, name) for name in RULES}
        return {**settings, **rules, **objective[self.name].defaults}

    def bind(self, **hyper: Any) -> Callable[[], Recipe]:
        """Return a function that makes the recipe; an unknown hyperparameter raises UserError.

        If an objective's hyperparameter has the name of a setting, the name means the hyperparameter.
        """
        known = objective[self.name].defaults
        settings = {k: v for k, v in hyper.items() if k in SETTINGS + RULES and k not in known}
        own = {name: value for name, value in hyper.items() if name not in settings}
        if set(own) - set(known):
            Entry.bind(self, **own)  # the error lists all names, settings included
        changed: dict[str, Any] = {"objective_args": pairs(**own)}
        changed |= _composed({name: str(settings[name]) for name in SETTINGS if name in settings})
        rules = {name: settings[name] for name in RULES if name in settings}
        refuse(wrong_types(f"recipe '{self.name}'", StepRule, rules))
        made = self._made()
        return lambda: replace(made, **changed, step_rule=replace(made.step_rule, **rules))

    def _made(self) -> Recipe:
        base = recipe.get_named(self.base) if self.base != self.name else None
        made: Recipe | None = base.bind()() if base else None
        if made is None or made.objective != self.base:
            return Recipe("group_std", self.name, "token_mean")
        return replace(made, objective=self.name, objective_args=())


class Recipes(Registry):
    """Look up named recipes first, then every objective in its default composition."""

    def __getitem__(self, name: str) -> Entry:
        if name in self._load():
            entry = super().__getitem__(name)
            return Registered(name, entry.function, entry.source, entry.promises)
        if in_a_file(name) or name in objective:
            entry = objective[name]
            return Composed(name, entry.function, entry.source, entry.promises)
        raise unknown("recipe", name, self.names())

    def get_named(self, name: str) -> Entry | None:
        """Return the recipe of that name; None if only an objective has it."""
        return self._load().get(name)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in objective

    def names(self) -> list[str]:
        """Return all names: recipes, then objectives without a recipe of the same name."""
        return [*self, *(name for name in objective if not super(Recipes, self).__contains__(name))]


recipe = Recipes("recipe", package="testbed.recipes")

__all__ = ["Recipe", "recipe"]
