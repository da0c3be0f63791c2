"""testbed list: list all names of one kind."""

import ast
import csv
import dataclasses
import inspect
import itertools
import pkgutil
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import typer

from testbed.cli import show
from testbed.cli.extensions import Kind, installed
from testbed.config.run import Run
from testbed.diagnostics.metric_aliases import ALIASES
from testbed.errors import UserError, suggest, unknown
from testbed.inspection.explain import facts
from testbed.objectives import objective
from testbed.words import split

Rows = list[dict[str, Any]]


def _fields() -> Rows:
    """Return the fields of Run: type, default, and the text below each in its source."""
    (tree,) = ast.parse(inspect.getsource(Run)).body
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    said = {
        node.target.id: ast.literal_eval(text.value)
        for node, text in itertools.pairwise(body)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(text, ast.Expr)
    }
    return [
        {"name": f.name, "type": f.type, "default": repr(f.default), "what": " ".join(said[f.name].split())}
        for f in dataclasses.fields(Run)
    ]


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n", 1)[0]


def _entries(registry: str, *promises: str) -> Callable[[], Rows]:
    """Return a function that lists a registry: name, first line, arguments and promises of each entry."""

    def rows() -> Rows:
        found = pkgutil.resolve_name(registry)
        return [_entry_row(name, found[name], promises) for name in found]

    return rows


def _entry_row(name: str, entry: Any, promises: Sequence[str]) -> dict[str, Any]:
    told = {key: entry.promises[key] for key in promises}
    return {
        "name": name,
        "what": _first_line(entry.function),
        **{key: ", ".join(value) if isinstance(value, tuple) else value for key, value in told.items()},
        "arguments": ", ".join(f"{key}={value!r}" for key, value in entry.defaults.items()),
    }


def _tasks() -> Rows:
    from testbed.worlds.task_registry import tasks

    return [_entry_row(name, entry, ()) for name, entry in tasks().items()]


def _objectives() -> Rows:
    return [facts(objective[name]) for name in objective]


def _aggregations() -> Rows:
    from testbed.losses.aggregate import AGGREGATIONS

    return [{"name": name, "what": _first_line(function)} for name, function in AGGREGATIONS.items()]


def _metrics() -> Rows:
    from testbed.diagnostics.metric_aliases import rows

    return [dict(row) for row in rows()]


def _metric_aliases(name: str) -> list[str]:
    return [alias.key for alias in ALIASES.get(name, ())]


def _registered(about: str, folder: str, decorator: str, *promises: str) -> Kind:
    """Return the kind of a registry, named as its decorator."""
    module = f"testbed.{folder.replace('/', '.')}"
    entries = _entries(f"{module}:{decorator}", *promises)
    return Kind(about, entries, f"testbed/{folder}", rf"^@{decorator}(\.variant)?\(")


CORE = {
    "fields": Kind("fields of a run, set by `testbed run … field=value`", _fields),
    "tasks": Kind("worlds and token tasks", _tasks, "envs", r"^@world\("),
    "recipes": _registered("advantage, objective and aggregation under one name", "recipes", "recipe"),
    "objectives": Kind(
        "losses per token",
        _objectives,
        "testbed/objectives",
        r"^@(objective(\.variant)?|decoupled)\(",
        shown=("name", "family", "formula", "source"),
    ),
    "advantages": _registered("advantages from rewards", "advantages", "advantage"),
    "aggregations": Kind(
        "rules that reduce token losses to one loss",
        _aggregations,
        "testbed/losses/aggregate.py",
        r'^    "\w+": ',
    ),
    "mismatches": _registered("differences between sampler and trainer", "mismatch", "mismatch", "support"),
    "schedules": _registered("which version of the weights makes a sample", "staleness", "schedule"),
    "anchors": _registered("proximal policies", "anchors", "anchor"),
    "prefixes": _registered("where responses begin", "prefixes", "prefix"),
    "critics": _registered("value functions", "critics", "critic", "policies"),
    "teachers": _registered("policies to learn from", "teachers", "teacher"),
    "guides": _registered("answers put into groups", "teachers/guides", "guide"),
    "verifiers": _registered("judges of answers", "worlds/verifier_rewards", "verifier"),
    "metrics": Kind("logged numbers", _metrics, aliases=_metric_aliases),
}


def kinds() -> dict[str, Kind]:
    """Return every kind of names, those of the core first."""
    return CORE | {name: kind for extension in installed() for name, kind in extension.kinds.items()}


def count(kind: Kind) -> int:
    """Return how many names a kind has, or definitions in its source files: a lower bound with `several`.

    Definitions are decorated functions, and rows of tables whose first column is the decorator's name.
    """
    if not kind.places:
        return len([*kind.names()] if kind.names else kind.rows())
    paths = [Path(__file__).parents[2] / place for place in kind.places.split()]
    files: list[Path] = []
    for path in paths:
        single = path if path.suffix else path.with_suffix(".py")
        files += path.rglob("*.py") if path.is_dir() else [single]
    found = sum(len(re.findall(kind.pattern, file.read_text(encoding="utf-8"), re.M)) for file in files)
    for file in (file for path in paths for file in path.rglob("*.csv")):
        head, *rows = csv.reader(file.read_text(encoding="utf-8").splitlines())
        found += len(rows) * (head[0] in kind.pattern)
    return found


def list_all(
    kind: Annotated[str | None, typer.Argument(help="A kind of names; without it, all kinds.")] = None,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATTERN | COLUMN=PATTERN]...", help="Shell patterns that rows must fit."),
    ] = None,
    by: Annotated[str, typer.Option(metavar="COLUMN", help="Count the rows by this column.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """List everything of one kind that has a name; without a kind, the kinds and how many there are of each.

    Examples:
    testbed list tasks

    testbed list metrics '*ess*sequence*'

    testbed list objectives family=smooth

    testbed list systems --by status
    """
    known = kinds()
    if kind is None:
        if by:
            raise UserError(
                f"--by {by} counts the names of one kind; give the kind: testbed list systems --by status."
            )
        if json:
            show.as_json({name: each.rows() for name, each in known.items()})
            return
        for name, each in known.items():
            number = f"{count(each)}{'+' * each.several}"
            print(f"{name:<13} {number:>5}  {each.about}")
        print("List a kind: testbed list KIND. Look a name up: testbed show NAME.")
        return
    if kind not in known:
        raise unknown("kind of thing", kind, known)
    found = narrowed(kind, known[kind], words or ())
    if by:
        counted = counts(found, by)
        show.as_json(counted) if json else show.table([{by: k, kind: n} for k, n in counted.items()])
    elif json:
        show.as_json(found)
    else:
        columns = known[kind].shown or tuple(found[0])
        show.table([{name: row[name] for name in columns} for row in found])


def narrowed(name: str, kind: Kind, words: Sequence[str]) -> Rows:
    """Return the rows that match every pattern, by name or COLUMN=PATTERN; UserError if none does."""
    rows = kind.rows()
    for word in words:
        column, pattern = split(word, "COLUMN=PATTERN") if "=" in word else ("name", word)
        if column not in rows[0]:
            raise unknown(f"column of {name}", column, rows[0])
        kept = [row for row in rows if any(fnmatchcase(text, pattern) for text in _texts(kind, row, column))]
        if not kept:
            hint = suggest(pattern, {str(row[column]) for row in rows})
            raise UserError(f"No row of {name} fits '{word}'.{hint} All of them: testbed list {name}")
        rows = kept
    return rows


def counts(rows: Rows, column: str) -> dict[str, int]:
    """Return how many rows have each value of a column; raise UserError for another column."""
    if column not in rows[0]:
        raise unknown("column", column, rows[0])
    return dict(Counter(str(row[column]) for row in rows).most_common())


def _texts(kind: Kind, row: Mapping[str, Any], column: str) -> list[str]:
    others = kind.aliases(row["name"]) if kind.aliases and column == "name" else ()
    return [str(row[column]), *others]
