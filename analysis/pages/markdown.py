"""A page's hand-written text, and a Markdown table from a head and rows of words."""

from collections.abc import Iterable, Sequence
from pathlib import Path


def text(name: str, **fields: object) -> str:
    """Return the text of NAME.txt beside this file, its {fields} filled in if any are given."""
    found = Path(__file__).with_name(f"{name}.txt").read_text(encoding="utf-8")
    return found.format(**fields) if fields else found


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return the table; a bar in a cell does not end it."""
    lines = (f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in (head, *rows))
    first, *others = lines
    return "\n".join([first, "|---" * len(head) + "|", *others])
