"""Whole results, every number and every line of text, compared with golden/pins/AREA.tsv.

`TESTBED_WRITE_PINS=1 pytest TESTS` writes them anew; read the difference before you commit it. A pin notices
that a result changed. Where ten lines of numpy can say what it should be, a test says that instead.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from support.refusals import PLACES

FOLDER = Path(__file__).parents[1] / "golden" / "pins"
SEPARATOR = " / "


def pinned(area: str, name: str, result: object, rel: float = 1e-9) -> None:
    """Assert that a result is what the golden file of the area holds under this name.

    rel: relative tolerance of numbers; 1e-5 for what is computed in float32.
    """
    found = dict(_leaves(name, result))
    path = FOLDER / f"{area}.tsv"
    of_name = {
        key: value for key, value in _whole(path).items() if (key + SEPARATOR).startswith(name + SEPARATOR)
    }
    if os.environ.get("TESTBED_WRITE_PINS"):
        rows = {key: value for key, value in _whole(path).items() if key not in of_name} | found
        path.write_text("".join(f"{key}\t{json.dumps(rows[key])}\n" for key in sorted(rows)))
        _whole.cache_clear()
        return
    assert of_name, f"{name} has no pin in {path.name}: write it with TESTBED_WRITE_PINS=1"
    both = dict.fromkeys([*of_name, *found])
    wrong = [key for key in both if not _same(of_name.get(key, "absent"), found.get(key, "absent"), rel)]
    said = [f"{key}: {found.get(key, 'absent')!r}, was {of_name.get(key, 'absent')!r}" for key in wrong[:5]]
    assert not wrong, f"{len(wrong)} differ from {path.name}, first:\n" + "\n".join(said)


def outcome(call: Any, /, *given: object, **named: object) -> object:
    """Return what a call returns, or the kind and the message of its error."""
    try:
        return call(*given, **named)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _leaves(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield (name, leaf): a leaf is a scalar, or a list of scalars."""
    value = _plain(value)
    if isinstance(value, dict) and value:
        for key, below in value.items():
            yield from _leaves(f"{name}{SEPARATOR}{key}", below)
    elif isinstance(value, list) and any(isinstance(_plain(each), dict | list) for each in value):
        for index, below in enumerate(value):
            yield from _leaves(f"{name}{SEPARATOR}{index:03}", below)
    else:
        yield name, [_plain(each) for each in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    """Return one layer of a value as dict, list or scalar; text of several lines as its lines."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, pd.DataFrame):
        return {str(name): column.tolist() for name, column in value.items()}
    if isinstance(value, pd.Series):
        return {str(key): each for key, each in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    if hasattr(value, "_asdict"):
        return value._asdict()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    if isinstance(value, list | tuple):
        return list(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, Real):
        return float(f"{float(value):.11g}")
    text = PLACES.sub("…", str(value)).replace("\t", "⇥")
    return text.split("\n") if "\n" in text else text


def _same(left: object, right: object, rel: float) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_same(a, b, rel) for a, b in zip(left, right, strict=True))
    if (isinstance(left, float) and isinstance(right, float | int)) or (
        isinstance(right, float) and isinstance(left, int)
    ):
        return math.isclose(left, right, rel_tol=rel, abs_tol=1e-12) or (left != left and right != right)
    return left == right and isinstance(left, bool) == isinstance(right, bool)


@cache
def _whole(path: Path) -> dict[str, Any]:
    """Return every leaf of an area by name."""
    rows = (line.split("\t") for line in path.read_text().splitlines()) if path.exists() else ()
    return {name: json.loads(said) for name, said in rows}
