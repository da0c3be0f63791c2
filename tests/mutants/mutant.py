"""Planted bugs, read from the tables in `catalog/`: a line per bug, under the file that it is planted in."""

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CATALOG = Path(__file__).parent / "catalog"


@dataclass(frozen=True)
class Mutant:
    """Replace `old` by `new` everywhere in the function `place` of `file`; `tests` must then fail.

    place: dotted name of a function or class in the file, "" for the whole file.
    """

    name: str
    file: str
    place: str
    old: str
    new: str
    tests: str

    def planted(self, text: str) -> str:
        """Return the text of the file with the bug in it.

        Raises ValueError where the place, or the text in it, is not there.
        """
        lines = text.splitlines(keepends=True)
        spans = list(_spans(_parsed(text).body, self.place)) if self.place else [(0, len(lines))]
        for start, stop in reversed(spans):
            lines[start:stop] = ["".join(lines[start:stop]).replace(self.old, self.new)]
        if (found := "".join(lines)) == text:
            raise ValueError(f"{self.name}: {self.file} {self.place} does not contain {self.old!r}")
        return found


def read_catalog() -> Iterator[Mutant]:
    """Yield the bugs of every table.

    A line "# FILE <tab> TESTS" opens a file. A bug is a line of name, place, old text and new text (it may be
    empty), between tabs. A fifth column names its tests where the file's will not do, or starts with "-k" or
    "-m" to choose among those.
    """
    for table in sorted(CATALOG.glob("*.tsv")):
        file = usual = ""
        for line in filter(None, table.read_text().split("\n")):
            if line.startswith("# "):
                file, usual = line[2:].split("\t")
                continue
            name, place, old, new, chosen, *_ = *line.split("\t"), "", ""
            chosen = f"{usual} {chosen}".strip() if chosen[:1] in ("", "-") else chosen
            yield Mutant(name, file, place, plain(old), plain(new), chosen)


def plain(written: str) -> str:
    """Return the text that a column stands for: "\\n" is a new line, "\\\\" a backslash."""
    return "\\".join(part.replace("\\n", "\n") for part in written.split("\\\\"))


def _spans(body: list[ast.stmt], place: str) -> Iterator[tuple[int, int]]:
    """Yield the first line (from 0) and the line after the last of each definition of a dotted name."""
    head, _, rest = place.partition(".")
    for each in body:
        if isinstance(each, ast.FunctionDef | ast.ClassDef) and each.name == head:
            if rest:
                yield from _spans(each.body, rest)
            else:
                first = min([each.lineno, *(decorator.lineno for decorator in each.decorator_list)])
                yield first - 1, each.end_lineno or first
        elif isinstance(each, ast.If | ast.With | ast.Try | ast.For):
            yield from _spans(each.body, place)


@functools.lru_cache(maxsize=1)
def _parsed(text: str) -> ast.Module:
    """Return the syntax tree; bugs of one file come one after another."""
    return ast.parse(text)
