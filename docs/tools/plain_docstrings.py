"""Docstrings as they are written, plain text with formulas, made fit to be read as Markdown.

Formulas are full of characters that Markdown takes for its own: rho_t * A_t, [B, T], E_mu<...>. They are
escaped, and lines "name: meaning" become a list. Nothing in the source has to know that a site exists.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

FIELD = re.compile(r"^(?P<name>[a-z_][\w.]*(?:, [a-z_][\w.]*)*): (?P<text>.+)$")
SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Attributes|Examples?):$")
SPECIAL = re.compile(r"([\\*_\[\]>#{}])")
EMPTY = "\u200b"


def escape(text: str) -> str:
    """Return text with Markdown's characters escaped, but for what stands in backticks."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else _escaped(part) for part in parts)


def _escaped(text: str) -> str:
    return SPECIAL.sub(r"\\\1", text).replace("<", "&lt;")


def to_markdown(text: str) -> str:
    """Return a docstring as Markdown: paragraphs escaped, fields as lists, indented blocks verbatim."""
    lines: list[str] = []
    text = re.sub(r"(?m)^>>> [\s\S]*?(?=\n\n|\Z)", _as_code, text)
    in_section = in_field = False
    for number, line in enumerate(text.expandtabs().splitlines()):
        if SECTION.match(line):
            in_section, in_field = True, False
            lines.append(line)
        elif in_section and (not line or line.startswith(" ")):
            lines.append(_indented_field(line))
        elif number and (field := FIELD.match(line)):
            if not in_field:
                lines.append("")
            lines.append(f"- `{field['name']}`: {escape(field['text'])}")
            in_section, in_field = False, True
        elif in_field and line.startswith("    "):
            lines.append("    " + escape(line.strip()))
        elif line.startswith("    "):
            in_field = False
            lines.append(line)
        else:
            if in_field and line:
                lines.append("")
            in_section = in_field = False
            lines.append(escape(line))
    return "\n".join(lines)


def _as_code(example: re.Match[str]) -> str:
    """Return a doctest as an indented block."""
    return "\n".join("    " + line for line in example[0].splitlines())


def _indented_field(line: str) -> str:
    """Return a line of an "Args" section with its text escaped and its name left alone."""
    found = re.match(r"^(\s*[\w.*]+(?: \([^)]*\))?: )(.*)$", line) or re.match(r"^(\s*)(.*)$", line)
    return found[1] + escape(found[2]) if found else line


class PlainDocstrings(griffe.Extension):
    """Rewrites every docstring when griffe meets it.

    The site shows what has a docstring (show_if_no_docstring is off): fields of a class, which its own
    docstring explains, are not listed again. Functions and classes without one get an empty one.
    """

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = to_markdown(obj.docstring.value)
        elif not obj.is_attribute:
            obj.docstring = griffe.Docstring(EMPTY, parent=obj)
