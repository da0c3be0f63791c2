"""A Markdown table from a head and rows of words."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return the table; a bar in a cell does not end it."""
    lines = (f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in (head, *rows))
    first, *others = lines
    return "\n".join([first, "|---" * len(head) + "|", *others])
