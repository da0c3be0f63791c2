"""Write cells as the text of a sweep file, if they form a grid."""

import itertools
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from testbed.config.fields import ARGUMENTS, FIELDS
from testbed.config.run import Run, grid


def as_toml(cells: Sequence[Run]) -> str | None:
    """Return a sweep file of these cells, in any order; None if they do not form a full grid.

    Leaves out fields at their default in all cells.
    """
    values = {name: list(dict.fromkeys(getattr(cell, name) for cell in cells)) for name in FIELDS}
    axes = {name: found for name, found in values.items() if len(found) > 1}
    shared = {name: found[0] for name, found in values.items() if len(found) == 1}
    if len(set(cells)) != math.prod(map(len, axes.values())) or set(grid(Run(**shared), **axes)) != set(
        cells
    ):
        return None
    split = [line for name, found in axes.items() for line in _axis(name, found)]
    if None in split:
        return None
    kept = {name: value for name, value in shared.items() if value != getattr(Run(), name)}
    lines = ["[run]", *(f"{name} = {_text(name, value)}" for name, value in kept.items())]
    return "\n".join([*lines, *(["", "[grid]"] if split else []), *map(str, split)]) + "\n"


def groups(cells: Sequence[Run]) -> list[tuple[Run, ...]]:
    """Return the cells in one group if they are a grid, else one group per recipe."""
    if as_toml(cells) is not None:
        return [tuple(cells)]
    ordered = sorted(cells, key=lambda cell: cell.recipe)
    return [tuple(found) for _, found in itertools.groupby(ordered, key=lambda cell: cell.recipe)]


def _axis(name: str, values: Sequence[Any]) -> Iterable[str | None]:
    """Yield the lines of an axis; arguments are separate axes if the tables are a grid of them."""
    if name not in ARGUMENTS:
        yield f"{name} = {_span(values) or '[' + ', '.join(_text(name, value) for value in values) + ']'}"
        return
    names = [tuple(key for key, _ in pairs) for pairs in values]
    if len(set(names)) > 1:
        yield None  # a cell without the argument is not on its axis
        return
    single = {key: list(dict.fromkeys(dict(pairs)[key] for pairs in values)) for key in names[0]}
    made = {tuple(zip(single, found, strict=True)) for found in itertools.product(*single.values())}
    if made != set(values):
        yield None
        return
    for key, found in single.items():
        yield f"{name}.{key} = [{', '.join(map(_scalar, found))}]"


def _span(values: Sequence[Any]) -> str:
    """Return "0..7" in quotes for four or more consecutive numbers, else nothing."""
    if len(values) < 4 or not all(type(value) is int for value in values):
        return ""
    first, last = min(values), max(values)
    return f'"{first}..{last}"' if sorted(values) == list(range(first, last + 1)) else ""


def _text(name: str, value: Any) -> str:
    if name in ARGUMENTS:
        return "{" + ", ".join(f"{json.dumps(key)} = {_scalar(item)}" for key, item in value) + "}"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and math.isinf(value):
        return str(value)  # JSON would say Infinity
    return json.dumps(value, ensure_ascii=False)


__all__ = ["as_toml", "groups"]
