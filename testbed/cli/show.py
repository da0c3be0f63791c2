"""Printing for people and for machines."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any


def as_json(data: Any) -> None:
    """Print JSON; a number that is not finite becomes null, which every reader understands."""
    print(json.dumps(_plain(data), indent=2, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def table(rows: Sequence[Mapping[str, Any]], title: str = "") -> None:
    """Print rows as a table, numbers to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not rows:
        console.print("nothing to show")
        return
    grid = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for name in rows[0]:
        numeric = all(_is_number(row[name]) for row in rows)
        grid.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        # Text, not str: a formula's brackets are not markup.
        grid.add_row(*(Text(_cell(value)) for value in row.values()))
    # Piped output has no width of its own: keep lines whole for grep.
    console.print(grid) if console.is_terminal else Console(width=200, highlight=False).print(grid)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
