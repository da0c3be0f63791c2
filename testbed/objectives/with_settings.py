"""Objectives that are another function with its own settings: the rows of with_settings.csv.

function, fixed: module:function below testbed.objectives, and arguments that nobody tunes. hyper: those that
people tune. promises: as the decorator takes them; an argument `keep` is one too. A value "module:name" is
that object, ":name" one of the function's module.
"""

import pkgutil
from typing import Any

from testbed.objectives import objective
from testbed.registry import described, table_rows
from testbed.words import named_values


def values(words: str, module: str) -> dict[str, Any]:
    """Return the values of a cell, with the objects that it names."""
    given = named_values(words.split())
    return {name: _named(x, module) if ":" in str(x) else x for name, x in given.items()}


def _named(text: str, module: str = "") -> Any:
    return pkgutil.resolve_name(f"testbed.objectives.{module if text[0] == ':' else ''}{text}")


# Modules load by name, this one last: a variant takes over promises of its base.
for row in table_rows(__file__, "with_settings"):
    name, module = row["objective"], row["function"].partition(":")[0]
    fixed, promises = values(row["fixed"], module), values(row["promises"], module)
    if "reads" in promises:
        promises["reads"] = tuple(promises["reads"].split(","))
    if "keep" in fixed:
        promises["keep"] = fixed["keep"]
    hyper = named_values(row["hyper"].split())
    loss = described(_named(row["function"]), hyper, row["formula"], row["note"], **fixed)
    if "@" in name:
        vars(loss)["__module__"] = objective[name.partition("@")[0]].function.__module__
    (objective.variant if "@" in name else objective)(name, source=row["source"], **promises)(loss)
