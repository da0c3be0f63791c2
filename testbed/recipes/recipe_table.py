"""Recipes that name their parts and pass on what people tune: the rows of recipes.csv.

hyper, fixed: what people tune, and what the recipe sets. A name is a field of Recipe, else a hyperparameter
of the objective, else of the advantage. term: an objective and the name of its coefficient.
"""

from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from typing import Any

from testbed.objectives import objective
from testbed.recipes import recipe
from testbed.recipes.composition import Recipe, Term, pairs
from testbed.registry import described, table_rows
from testbed.words import named_values

FIELDS = {field.name for field in fields(Recipe)}


def composed(row: Mapping[str, str], **given: Any) -> Recipe:
    """Return the recipe of a row with every value given to the part that has it."""
    term = row["term"].split()
    settings, rest = ({k: v for k, v in given.items() if (k in FIELDS) is wanted} for wanted in (True, False))
    known = objective[row["objective"]].defaults
    return Recipe(
        row["advantage"],
        row["objective"],
        row["aggregation"],
        advantage_args=pairs(**{k: v for k, v in rest.items() if k not in {*known, *term}}),
        objective_args=pairs(**{k: v for k, v in rest.items() if k in known}),
        terms=(Term(term[0], rest[term[1]]),) if term else (),
        **settings,
    )


for each in table_rows(__file__, "recipes"):
    hyper, fixed = (named_values(each[column].split()) for column in ("hyper", "fixed"))
    make = described(partial(composed, each), hyper, each["about"], each["note"], **fixed)
    recipe(each["recipe"], source=each["source"])(make)
