"""Open files of other stacks without running code in them, and report files that are cut short."""

import json
import pickle
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from testbed.errors import UserError, suggest

PICKLES = (".pkl", ".pickle")
DAMAGED = (
    OSError, RuntimeError, EOFError, ValueError, KeyError, IndexError, TypeError, AttributeError,
    OverflowError, AssertionError, struct.error,
)  # fmt: skip
"""Errors that torch's loader raises on a file with a wrong byte."""
SPACE = re.compile(r"\s*")


class Row(dict[str, Any]):
    """Fields of a row of a log; one that is missing is named with the row."""

    def __init__(self, fields: Mapping[str, Any], place: str) -> None:
        super().__init__(fields)
        self.place = place

    def __missing__(self, key: str) -> None:
        raise Missing(f"{self.place} has no field '{key}'.{suggest(key, map(str, self))}")


class Missing(UserError):
    """A field that a row lacks."""


def json_lines(path: Path, notes: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """Return (place, object) of every line, or of objects that span lines, as `jq .` prints them.

    An incomplete end is reported in notes. Raises UserError for anything else that is not an object, and for
    a file without a complete one.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path} cannot be read as UTF-8 text ({type(error).__name__}); expected JSON lines. Unpack or "
            "convert it first, as with gunzip or iconv."
        ) from error
    # Not splitlines: JSON strings may contain U+2028 and U+0085, which do not end a line.
    filled = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    found: list[tuple[str, dict[str, Any]]] = []
    for number, line in filled:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            last = len(filled) > 1 and number == filled[-1][0]
            if not last and (whole := _across_lines(path, text, notes)):
                return whole
            if not last:
                raise UserError(
                    f"{path}:{number} is not JSON ({_cause(error)}); expected one object per line."
                ) from error
            notes.append(f"{path.name} is cut short: its last line, {number}, is incomplete and was dropped.")
            break
        found += _objects(row, f"{path.name}:{number}", f"{path}:{number}")
    if not found:
        raise UserError(f"{path} is empty; expected JSON lines.")
    return found


def _cause(error: Exception) -> str:
    """Say why Python's reader refused a line, without its advice to programmers."""
    if isinstance(error, RecursionError):
        return "brackets are nested too deeply"
    return "a whole number has over 4,300 digits" if "set_int_max" in str(error) else str(error)


def _across_lines(path: Path, text: str, notes: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """Return the objects of JSON values that follow each other, [] if one before the last is damaged."""
    read, text = json.JSONDecoder().raw_decode, text.strip()
    found: list[dict[str, Any]] = []
    at = 0
    while at < len(text):
        try:
            value, at = read(text, at)
        except (ValueError, RecursionError):
            # Where a later line starts a value, the file is damaged in its middle, not cut short.
            if not found or re.search(r"\n[\[{]", text[at:]):
                return []
            notes.append(f"{path.name} is cut short: its last object is incomplete and was dropped.")
            break
        found += [each for _, each in _objects(value, "", str(path))]
        at = next(SPACE.finditer(text, at)).end()
    return [(place := f"{path.name}:{n}", Row(each, place)) for n, each in enumerate(found, start=1)]


def _objects(row: Any, place: str, where: str) -> list[tuple[str, dict[str, Any]]]:
    rows = row if isinstance(row, list) else [row]
    if not all(isinstance(each, dict) for each in rows):
        raise UserError(f"{where} holds {json.dumps(row)[:60]}; expected objects, one or a list per line.")
    return [(place, Row(each, place)) for each in rows]


def parquet_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a Parquet file; raise UserError if it is damaged or cut short."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0][:200]
        raise UserError(
            f"{path} is not a complete Parquet file ({reason}). Was its writer stopped?"
        ) from error
    if not rows:
        raise UserError(f"{path} has no rows.")
    return [Row(each, f"{path.name}, row {n}") for n, each in enumerate(rows, start=1)]


def tensors(path: Path) -> Any:
    """Load what torch.save wrote, tensors and plain values only; refuse anything that would run code.

    Raises UserError for other pickles, for objects of a stack's classes, and for a damaged file.
    """
    if path.suffix in PICKLES:
        raise UserError(
            f"{path} is a pickle, which runs code when it is opened: refused. Where you trust it, turn it "
            'into plain tensors beside the stack that wrote it:\n  python -c "import pickle, sys, torch; '
            "b = pickle.load(open(sys.argv[1], 'rb')); torch.save({k: v for k, v in b.items() "
            f'if torch.is_tensor(v)}}, sys.argv[2])" {path} {path.with_suffix(".pt")}'
        )
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{path} holds more than tensors and plain values, which weights_only loading refuses: "
            f"{_reason(error)}. Where you trust it, load it beside the stack that wrote it and torch.save a "
            "dictionary of tensors, lists and numbers."
        ) from error
    except DAMAGED as error:
        raise UserError(
            f"{path} is not a complete torch file ({_reason(error)}). Was its writer stopped?"
        ) from error


def _reason(error: Exception) -> str:
    """Return the line of torch's long message that states the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    named = [line for line in lines if "Unsupported" in line or "GLOBAL" in line]
    return (named or lines)[0][:160].rstrip(".")


def inside(path: Path, *patterns: str) -> list[Path]:
    """Return the file itself, or the matching files below a folder, ordered by the numbers in their names."""
    if not path.is_dir():
        return [path]
    found = {file for pattern in patterns for file in path.rglob(pattern) if file.is_file()}
    return sorted(found, key=lambda file: [*_numbers(str(file))])


def _numbers(text: str) -> Iterator[tuple[int, str, int]]:
    """Split a name so that step_10 sorts after step_9."""
    for part in re.split(r"(\d+)", text):
        yield (1, "", int(part)) if part.isdigit() else (0, part, 0)


def number_in(path: Path, pattern: str) -> int | None:
    """Return the number that a pattern's first group finds in a path, None without one."""
    found = re.search(pattern, str(path))
    return int(found[1]) if found else None
