"""Read JSON of a model folder as data, with one message for any fault."""

import json
from pathlib import Path
from typing import Any

from testbed.errors import UserError


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; UserError if it is missing, not a regular file, or broken."""
    if not path.is_file():
        raise UserError(f"'{path.parent}' has no {path.name}; give a folder written by save_pretrained.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise UserError(f"{path} is nested too deeply; give a folder written by save_pretrained.") from None
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON: {error}.") from error
    if not isinstance(content, dict):
        raise UserError(
            f"{path} holds a {type(content).__name__}, expected an object with the model's settings."
        )
    return content
