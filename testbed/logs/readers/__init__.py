"""One reader per format: it recognizes its files and turns them into records, or into metrics by step.

A module here defines a READER. Its docstring names the stack's file that writes the format. Formats change,
so a reader reads fields by name, refuses unknown ones, and reports its omissions and assumptions.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from testbed.errors import UserError, counted, unknown
from testbed.logs import files
from testbed.logs.record import Log, joined
from testbed.logs.scalars import ScalarLog

MALFORMED = (
    KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError, RuntimeError,
)  # fmt: skip
"""Errors that a field of another shape raises in a reader."""


@dataclass(frozen=True)
class Reader:
    """Reader of one stack's files.

    name: of the stack. writes: its name for the files. patterns: file names below a folder. keys: fields that
    only its rows have together. read: from all files of one format to a Log, or to a ScalarLog if the format
    has no tokens. accepts: recognizes rows that `keys` do not, asked if no keys match. lacks: says what
    such a row misses, "" if it is of another kind.
    """

    name: str
    writes: str
    patterns: tuple[str, ...]
    keys: tuple[str, ...]
    read: Callable[[Sequence[Path]], Log | ScalarLog]
    accepts: Callable[[Mapping[str, Any]], bool] = lambda _: False
    lacks: Callable[[Mapping[str, Any]], str] = lambda _: ""


@cache
def readers() -> Mapping[str, Reader]:
    modules = sorted(item.name for item in pkgutil.iter_modules(__path__))
    found = [importlib.import_module(f"{__name__}.{name}").READER for name in modules]
    return {reader.name: reader for reader in found}


def read(paths: str | Path | Sequence[str | Path], name: str = "") -> Log:
    """Read training logs as one log of tokens or texts.

    Args:
        paths: files or folders in one of the formats of `readers()`; or one of them.
        name: the format; recognized from the fields by default.

    Returns:
        A Log with one record per sequence.

    Raises UserError for an unknown format, a damaged file, or a log of scalars alone.
    """
    given = [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    if not given:
        raise UserError("No path was given, expected log files, or the folder that holds them.")
    found = read_any(given, name)
    if isinstance(found, ScalarLog):
        raise UserError(
            f"{given[0]} holds numbers by step of {found.source}, no tokens; `testbed diagnose` reads it."
        )
    return found


def read_any(paths: Sequence[Path], name: str = "") -> Log | ScalarLog:
    """Return files or folders as one log; scalars only if there are no tokens or texts.

    Args:
        paths: files, or folders that hold some.
        name: the format; by default recognized from the files.

    Raises UserError for a missing or empty path, an unknown name, files of no known format, scalars of two
    formats, and anything that a reader refuses.
    """
    if name and name not in readers():
        raise unknown("log format", name, readers())
    grouped: dict[str, list[Path]] = {}
    passed: list[str] = []
    for path in paths:
        if not path.exists():
            raise UserError(f"{path} does not exist; give log files, or the folder that holds them.")
        for file in _files(path, name):
            try:
                grouped.setdefault(name or recognized(file), []).append(file)
            except UserError:
                if not path.is_dir():
                    raise
                passed.append(file.name)
    if not grouped:
        raise UserError(
            f"None of {', '.join(passed[:5])} is a log in a known format: {', '.join(readers())}."
        )
    found = _joined([_told(readers()[each], some) for each, some in grouped.items()])
    left = f"Not read, {counted(len(passed), 'file')}: {', '.join(passed[:3])}{' …' if passed[3:] else ''}."
    return replace(found, notes=(*found.notes, left)) if passed else found


def _joined(logs: Sequence[Log | ScalarLog]) -> Log | ScalarLog:
    """Return logs of tokens as one, with a note on any scalars; return scalars alone unchanged."""
    tokens = [log for log in logs if isinstance(log, Log)]
    scalars = [log for log in logs if isinstance(log, ScalarLog)]
    if not tokens:
        if len(scalars) > 1:
            raise UserError(
                "These are scalars of two formats, perhaps from two runs: give the files of one run."
            )
        return scalars[0]
    log = joined(tokens)
    beside = "lie beside the tokens; name their file to read them."
    said = (f"Scalars of {each.source} {beside}" for each in scalars)
    return replace(log, notes=(*log.notes, *said))


def _told(reader: Reader, paths: Sequence[Path]) -> Log | ScalarLog:
    """Read files; turn a missing field, or one of another shape, into one message."""
    try:
        return reader.read(paths)
    except files.Missing as error:
        raise UserError(f"{error} Every row of the {reader.name} format has it.") from error
    except UserError:
        raise
    except MALFORMED as error:
        missing = isinstance(error, KeyError)
        what = f"field {error} is missing" if missing else f"{type(error).__name__}: {error}"
        raise UserError(
            f"{paths[0]} does not hold what the {reader.name} reader expects ({what}). Its format may have "
            "changed; see the reader's docstring for the one that is read."
        ) from error


def _files(path: Path, name: str) -> list[Path]:
    known = [readers()[name]] if name else list(readers().values())
    patterns = tuple(dict.fromkeys(pattern for reader in known for pattern in reader.patterns))
    found = files.inside(path, *patterns)
    if not found:
        raise UserError(f"{path} holds none of {', '.join(patterns)}.")
    return found


def recognized(path: Path) -> str:
    """Return a file's format by the fields of its first row; raise UserError if none matches."""
    if path.suffix in files.PICKLES:
        files.tensors(path)  # raises with the reason
    first = _first(path)
    for reader in readers().values():
        if all(key in first for key in reader.keys):
            return reader.name
    for reader in readers().values():
        if reader.accepts(first):
            return reader.name
    shown = ", ".join(map(str, list(first)[:8])) or "nothing"
    raise UserError(
        f"{path} has the fields {shown}, which no reader knows. {_nearest(first)}Name one with --format: "
        f"{', '.join(readers())}."
    )


def _nearest(first: Mapping[str, Any]) -> str:
    """Return the format that shares most fields with a row, and the missing fields; "" if none does."""
    keys = {name: reader.keys for name, reader in readers().items()}
    shared = {name: sum(key in first for key in own) / len(own) for name, own in keys.items()}
    best = max(shared, key=lambda name: shared[name])
    if not shared[best]:
        lacking = {name: lack for name, reader in readers().items() if (lack := reader.lacks(first))}
        return next((f"The nearest format is {name}, without {lack}. " for name, lack in lacking.items()), "")
    missing = ", ".join(key for key in readers()[best].keys if key not in first)
    return f"The nearest format is {best}, without {missing}. "


def _first(path: Path) -> Mapping[str, Any]:
    """Return the first row of a file as a mapping from its fields."""
    if path.suffix == ".parquet":
        return files.parquet_rows(path)[0]
    if path.suffix in (".pt", ".pth"):
        held = files.tensors(path)
        return held if isinstance(held, dict) else {}
    return files.json_lines(path, [])[0][1]
