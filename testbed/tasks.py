"""The catalog of `envs` behind the project's registry: nearest names, checked arguments."""

from __future__ import annotations

from functools import cache
from typing import Any

from envs.catalog import worlds
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
