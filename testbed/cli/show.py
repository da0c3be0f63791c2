"""Print tables and JSON."""

import json
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from testbed.errors import printable

BLOCKS = "▁▂▃▄▅▆▇█"


def as_json(data: Any) -> None:
    """Print JSON; numbers that are not finite become null, which every reader accepts."""
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


def sparkline(values: Iterable[float], full: float = 1.0) -> str:
    """Return a block per value of at least 0, the tallest for `full` and above and for what is not finite."""
    top = len(BLOCKS) - 1
    heights = (round(min(x / full, 1.0) * top) if math.isfinite(x) else -1 for x in values)
    return "".join(BLOCKS[height] for height in heights)


def table(rows: Sequence[Mapping[str, Any]], title: str = "") -> None:
    """Print rows as a table, with numbers right-aligned."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not rows:
        console.print("nothing to show")
        return
    grid = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    widths = _widths(rows, console.width) if console.is_terminal else dict.fromkeys(rows[0])
    if widths is None:
        cells = ([f"{name} {_cell(value)}" for name, value in row.items() if value != ""] for row in rows)
        found = ["; ".join(each) for each in cells]
        print("\n".join(textwrap.fill(line, console.width, subsequent_indent="  ") for line in found))
        return
    for name in rows[0]:
        numeric = all(_is_number(row[name]) for row in rows)
        grid.add_column(name, justify="right" if numeric else "left", overflow="fold", width=widths[name])
    for row in rows:
        # Text, not str: a formula's brackets are not markup.
        grid.add_row(*(Text(_cell(value)) for value in row.values()))
    # Piped output has no terminal width: keep lines whole for grep.
    console.print(grid) if console.is_terminal else Console(width=200, highlight=False).print(grid)


def say(lines: Sequence[str]) -> None:
    """Print each sentence on a new line, wrapped to the terminal if there is one."""
    from rich.console import Console

    console = Console()
    for line in (printable(line, 10 * len(line) + 60) for line in lines):
        print(textwrap.fill(line, console.width - 1) if console.is_terminal else line)


def _widths(rows: Sequence[Mapping[str, Any]], room: int) -> dict[str, int | None] | None:
    """Return column widths that break lines only between words, or None if there is too little room."""
    cells = {name: [name, *(_cell(row[name]) for row in rows)] for name in rows[0]}
    wanted = {name: max(map(len, found)) for name, found in cells.items()}
    words = {name: [word for text in found for word in text.split()] for name, found in cells.items()}
    least = {name: max(map(len, found)) for name, found in words.items()}
    while sum(wanted.values()) + 3 * len(wanted) - 1 > room:
        widest = max(wanted, key=lambda name: (wanted[name] > least[name], wanted[name] - least[name]))
        if wanted[widest] <= least[widest]:
            return None
        wanted[widest] -= 1
    return dict(wanted)


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    body = [[_cell(value).replace("|", "\\|").replace("\n", " ") for value in row.values()] for row in rows]
    lines = [list(rows[0]), ["---"] * len(rows[0]), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def latex(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as a LaTeX tabular with the rules of booktabs; special characters are escaped."""
    body = [[_in_latex(_cell(value)) for value in row.values()] for row in rows]
    head = [_in_latex(name) for name in rows[0]]
    lines = [" & ".join(line) + r" \\" for line in (head, *body)]
    start = rf"\begin{{tabular}}{{{'l' * len(head)}}}"
    ruled = [start, r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule", r"\end{tabular}"]
    return "\n".join(ruled)


def _in_latex(text: str) -> str:
    named = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(named.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in text)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _cell(value: Any) -> str:
    """Return a value as text; what a terminal would obey in the user's texts is escaped."""
    if isinstance(value, float):
        return "–" if value != value else f"{value:.3g}"
    return printable(value)
