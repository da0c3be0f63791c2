"""Parse words of the form name=value; the only parser of them."""

import ast
import json
from collections.abc import Iterable
from typing import Any

from testbed.errors import UserError


def split(word: str, example: str) -> tuple[str, str]:
    """Return name and text of "name=text"; raise UserError, with the example, for a word of another form."""
    name, equals, text = word.partition("=")
    if not name or not equals:
        raise UserError(f"'{word}': expected {example}.")
    return name, text


def value_of(text: str) -> Any:
    """Return the JSON or Python value of a text, as 3, .5, true, None, [1, 2] or inf; else the text."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError):
            continue
    return float(text) if text in ("inf", "-inf") else text


def named_values(words: Iterable[str], example: str = "NAME=VALUE") -> dict[str, Any]:
    """Return "name=value" words as a dictionary; raise UserError for another form and for repeated names."""
    found: dict[str, Any] = {}
    for word in words:
        name, text = split(word, example)
        if name in found:
            raise UserError(f"'{word}': '{name}' is given twice.")
        found[name] = value_of(text)
    return found
