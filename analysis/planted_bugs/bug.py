"""A bug that an exact claim must notice, and the function that it is in."""

import ast
import functools
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Bug:
    """Replace `old` by `new` everywhere in `file`; `claim` must then be refuted."""

    claim: str
    file: str
    old: str
    new: str

    @property
    def about(self) -> str:
        """Dotted name of the innermost function that holds the first place where the bug is planted."""
        text = _text(self.file)
        line = text[: text.index(self.old)].count("\n") + 1
        # A replacement that starts with the lines before is in the function that it ends in.
        last = line + self.old.rstrip("\n").count("\n")
        module = self.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        names, body = [module], ast.parse(text).body
        while inner := _holding(body, last):
            names.append(inner.name)
            body = inner.body
        return ".".join(names)


Named = ast.FunctionDef | ast.ClassDef


def _holding(body: list[ast.stmt], line: int) -> Named | None:
    """Return the function or class of a body that the line lies in."""
    inside = (each for each in body if isinstance(each, Named))
    return next((each for each in inside if each.lineno <= line <= (each.end_lineno or 0)), None)


@functools.cache
def _text(file: str) -> str:
    return (ROOT / file).read_text()
