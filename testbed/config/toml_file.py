"""Read runs from a TOML file or `field=value` words: typed, all errors at once, with line numbers.

[run]
task = "running-sum"
learning_rate = 3e-3
task_args = {digits = 12}

[grid]
recipe = ["grpo", "m2po"]
lag = [0, 16]
seed = "0..7"
recipe_args.eps = [0.1, 0.2]
"""

import dataclasses
import itertools
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.config.fields import ARGUMENTS, FIELDS, coerced, contradictions, problems
from testbed.config.run import NEW_NAME, OLD_NAME, RENAMED, Run, cell_ids
from testbed.errors import UserError, candidates, suggest
from testbed.words import split

LARGEST_GRID = 1_000_000
RANGE = re.compile(r"(\d{1,18})\.\.(\d{1,18})")
"""The numbers from one to another, both included."""

Known = Mapping[str, Iterable[str]]
"""Allowed names of text fields, by field: {"task": [...], "recipe": [...]}."""

Watch = Callable[[str, int, Iterable[Run]], Iterable[Run]]
"""watch(what, count, cells) passes the cells on and may report progress."""


def unwatched(_what: str, _count: int, cells: Iterable[Run]) -> Iterable[Run]:
    """Return the cells; the default Watch, without progress."""
    return cells


def from_toml(path: str | Path, known: Known | None = None, watch: Watch = unwatched) -> tuple[Run, ...]:
    """Return the cells of a sweep file, [run] per combination of [grid]; UserError with a line per error."""
    text = _text(Path(path))
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(_syntax(path, error, text)) from None
    if not data:
        raise UserError(f"{path} is empty, expected a table [run] and, for a sweep, a table [grid].")
    lines = line_numbers(text)
    wrong = list(_misplaced(data))
    run, axes = data.get("run", {}), _axes(data.get("grid", {}))
    if not wrong:
        wrong = [*_wrong_run(run, known or {}), *_wrong_axes(axes, known or {})]
    if not wrong:
        cells = tuple(watch("making cells", _size(axes), _cells(Run(), run, axes)))
        wrong = [(f"run.{field}", f"{field} {reason}") for field, reason in _together(cells)]
    if wrong:
        found = sorted((_line(lines, where), message) for where, message in wrong)
        raise UserError("\n".join(f"{path}:{line}: {message}" for line, message in found))
    return unique(watch("checking cells", len(cells), cells))


def override(run: Run, items: Sequence[str]) -> Run:
    """Return the run with `field=value` words applied, as ["lag=16", "recipe_args.eps=0.1"].

    Raises UserError naming every word with an unknown field, a wrong type, or more than one value.
    """
    cells = expand([run], items)
    if len(cells) > 1:
        raise UserError(f"'{' '.join(items)}' gives {len(cells)} runs, expected one value per field.")
    return cells[0]


def expand(
    runs: Iterable[Run], items: Sequence[str], known: Known | None = None, watch: Watch = unwatched
) -> tuple[Run, ...]:
    """Return every run with `field=value` words applied; `lag=0,4,16` is an axis, equal cells appear once.

    Raises UserError with one line per wrong word.
    """
    axes: dict[str, list[Any]] = {}
    wrong = []
    for item in items:
        try:
            field, text = split(item, "field=value, as lag=16")
        except UserError as error:
            wrong.append(str(error))
            continue
        if field in axes:
            wrong.append(f"'{item}': '{field}' is given twice.")
        else:
            values = [text] if field == "model" else text.split(",")
            axes[field] = ranged(field, [_typed(field, value.strip()) for value in values])
    wrong += [f"'{where.removeprefix('grid.')}': {why}" for where, why in _wrong_axes(axes, known or {})]
    if not wrong:
        first = {
            field: values[:1] for field, values in axes.items()
        }  # runs that differ only in these are equal
        runs = unique(cell for run in runs for cell in _cells(run, {}, first)) if axes else tuple(runs)
        made = (cell for run in runs for cell in _cells(run, {}, axes)) if axes else runs
        cells = tuple(watch("checking cells", len(runs) * _size(axes), made))
        wrong = [f"{field} {reason}" for field, reason in _together(cells)]
    if wrong:
        raise UserError("\n".join(dict.fromkeys(wrong)))
    return unique(cells)


def unique(cells: Iterable[Run]) -> tuple[Run, ...]:
    """Return the cells in order, each once."""
    cells = tuple(cells)
    return tuple(dict(zip(cell_ids(cells), cells, strict=True)).values())


def line_numbers(text: str) -> dict[str, int]:
    """Return the line (from 1) on which each dotted key of a TOML text stands."""
    lines: dict[str, int] = {}
    table, quote = "", ""
    for number, line in enumerate(text.splitlines(), start=1):
        if quote:
            quote = "" if quote in line else quote
            continue
        header = re.match(r"\s*\[+\s*([^\[\]]+?)\s*\]", line)
        key = re.match(r"\s*([\w\-.\"' ]+?)\s*=", line)
        if header and not key:
            table = re.sub(r"[\"'\s]", "", header[1])
            lines.setdefault(table, number)
        elif key:
            parts = re.sub(r"[\"'\s]", "", f"{table}.{key[1]}".lstrip(".")).split(".")
            for end in range(1, len(parts) + 1):
                lines.setdefault(".".join(parts[:end]), number)
        quote = next((q for q in ('"""', "'''") if line.count(q) % 2), "")
    return lines


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}. Expected a TOML sweep file.") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text. Expected a TOML sweep file.") from None


def _syntax(path: str | Path, error: tomllib.TOMLDecodeError, text: str) -> str:
    place = re.search(r" \(at (?:line (\d+).*|end of document)\)$", str(error))
    end = max(1, len(text.rstrip().splitlines()))  # the end of an open bracket or quote is unknown
    line = f":{place[1] or end}" if place else ""
    reason = str(error)[: place.start()] if place else str(error)
    twice = "Cannot overwrite a value", "Cannot declare", "Duplicate inline table key"
    hint = " Each key and each table may appear once." if reason.startswith(twice) else ""
    return f"{path}{line}: {reason}.{hint}"


def _misplaced(data: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for name, value in data.items():
        if name not in ("run", "grid"):
            hint = f" Put it under [run] as {name} = …" if name in FIELDS else suggest(name, ["run", "grid"])
            yield name, f"'{name}' stands at the top level, expected only the tables [run] and [grid].{hint}"
        elif not isinstance(value, dict):
            yield name, f"'{name}' is {value!r}, expected a table: [{name}]."


def _axes(grid: Any) -> dict[str, Any]:
    """Return the axes of a [grid] table; `recipe_args.eps` is a separate axis."""
    axes: dict[str, Any] = {}
    for name, values in grid.items() if isinstance(grid, dict) else ():
        if name in ARGUMENTS and isinstance(values, dict):
            axes |= {f"{name}.{key}": inner for key, inner in values.items()}
        else:
            axes[name] = values
    return {name: ranged(name, values) for name, values in axes.items()}


def ranged(field: str, values: Any) -> Any:
    """Expand "0..7", alone or in a list, to 0, 1, …, 7; leave values of text fields unchanged."""
    stem, _, key = field.partition(".")
    if not key and isinstance(getattr(Run(), stem, ""), str):
        return values
    if isinstance(values, str) and RANGE.fullmatch(values):
        values = [values]
    return [one for value in values for one in _span(value)] if isinstance(values, list) else values


def _span(value: Any) -> Iterable[Any]:
    match = RANGE.fullmatch(value) if isinstance(value, str) else None
    span = range(int(match[1]), int(match[2]) + 1) if match else range(0)
    return span if 0 < len(span) <= LARGEST_GRID else (value,)


def _wrong_field(name: str) -> str:
    stem, _, key = name.partition(".")
    if stem in ARGUMENTS or (name in FIELDS and not key):
        return ""
    return f"Run has no field '{name}'.{suggest(stem, FIELDS)} {candidates(stem, FIELDS)}"


def _wrong_value(name: str, value: Any, known: Known) -> Iterable[str]:
    stem, _, key = name.partition(".")
    for _, reason in problems({stem: {key: value} if key else value}):
        if isinstance(value, str) and RANGE.fullmatch(value):
            reason = f"is {value}, expected as in 0..7: the smaller first, at most {LARGEST_GRID:,} numbers."
        yield f"{stem} {reason}"
    names = known.get(name)
    if names is None or not isinstance(value, str) or ".py" in value:  # in a user's file: read later
        return
    if value not in (listed := sorted(names)):
        yield f"Unknown {name} '{value}'.{suggest(value, listed)} {candidates(value, listed)}"


def _wrong_run(run: Mapping[str, Any], known: Known) -> Iterable[tuple[str, str]]:
    for name, value in run.items():
        if message := _wrong_field(name):
            yield f"run.{name}", message
        else:
            yield from ((f"run.{name}", reason) for reason in _wrong_value(name, value, known))


def _wrong_axes(axes: Mapping[str, Any], known: Known) -> Iterable[tuple[str, str]]:
    size = 1
    for name, values in axes.items():
        if message := _wrong_field(name):
            yield f"grid.{name}", message
        elif not isinstance(values, list) or not values:
            yield f"grid.{name}", f"{name} is {values!r}, expected a list of at least one value."
        else:
            size *= len(values)
            for value in values:
                yield from ((f"grid.{name}", reason) for reason in _wrong_value(name, value, known))
    if size > LARGEST_GRID:
        yield "grid", f"The grid has {size} cells, expected at most {LARGEST_GRID}."


def _size(axes: Mapping[str, Sequence[Any]]) -> int:
    return math.prod(len(values) for values in axes.values())


def _cells(run: Run, fields: Mapping[str, Any], axes: Mapping[str, Sequence[Any]]) -> Iterator[Run]:
    """Yield the cells of a grid; cells with a common value share the object, so checking them is quick."""
    start = dataclasses.replace(run, **{name: coerced(name, value) for name, value in fields.items()})
    typed = [v if "." in name else [coerced(name, value) for value in v] for name, v in axes.items()]
    for values in itertools.product(*typed):
        changed: dict[str, Any] = {}
        for name, value in zip(axes, values, strict=True):
            stem, _, key = name.partition(".")
            before = dict(changed.get(stem, getattr(start, stem))) if key else {}
            if key == OLD_NAME and stem in RENAMED and NEW_NAME in before:
                key = NEW_NAME
            changed[stem] = coerced(stem, before | {key: value}) if key else value
        yield dataclasses.replace(start, **changed)


def _together(cells: Iterable[Run]) -> dict[tuple[str, str], None]:
    return dict.fromkeys(wrong for cell in cells for wrong in contradictions(cell))


def _typed(field: str, text: str) -> Any:
    """Return a word's value: except for text fields, the number or boolean it spells, if any."""
    stem, _, key = field.partition(".")
    if not key and isinstance(getattr(Run(), stem, ""), str):
        return text
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _line(lines: Mapping[str, int], where: str) -> int:
    while where not in lines and "." in where:
        where = where.rpartition(".")[0]
    return lines.get(where, 1)
