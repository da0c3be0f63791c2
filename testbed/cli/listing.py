"""testbed list: everything that has a name."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

Rows = list[dict[str, Any]]


def _fields() -> Rows:
    """Return the fields of Run: type and default, and what stands under each in its source."""
    import ast
    import dataclasses

    from testbed.config.run import Run

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


def _registry(registry: Any) -> Rows:
    return [{"name": name, "what": _first_line(registry[name].function)} for name in registry]


def _tasks() -> Rows:
    from testbed.worlds.tasks import tasks

    return [
        {
            "name": name,
            "what": _first_line(entry.function),
            "arguments": ", ".join(f"{k}={v!r}" for k, v in entry.defaults.items()),
        }
        for name, entry in tasks().items()
    ]


def _recipes() -> Rows:
    from testbed.recipes import recipe

    return _registry(recipe)


def _objectives() -> Rows:
    from testbed.objectives import objective

    return _registry(objective)


def _advantages() -> Rows:
    from testbed.advantages import advantage

    return _registry(advantage)


def _aggregations() -> Rows:
    from testbed.losses.aggregate import AGGREGATIONS

    return [{"name": name, "what": _first_line(function)} for name, function in AGGREGATIONS.items()]


def _mismatches() -> Rows:
    from testbed.mismatch import mismatch

    return [
        {
            **row,
            "arguments": ", ".join(f"{k}={v!r}" for k, v in mismatch[row["name"]].defaults.items()),
            "support": mismatch[row["name"]].promises["support"],
        }
        for row in _registry(mismatch)
    ]


def _schedules() -> Rows:
    from testbed.staleness import schedule

    return [
        {**row, "arguments": ", ".join(f"{k}={v!r}" for k, v in schedule[row["name"]].defaults.items())}
        for row in _registry(schedule)
    ]


def _anchors() -> Rows:
    from testbed.anchors import anchor

    return [
        {**row, "arguments": ", ".join(f"{k}={v!r}" for k, v in anchor[row["name"]].defaults.items())}
        for row in _registry(anchor)
    ]


def _prefixes() -> Rows:
    from testbed.prefixes import prefix

    return [
        {**row, "arguments": ", ".join(f"{k}={v!r}" for k, v in prefix[row["name"]].defaults.items())}
        for row in _registry(prefix)
    ]


def _critics() -> Rows:
    from testbed.critics import critic

    return [
        {
            **row,
            "policies": ", ".join(critic[row["name"]].promises["policies"]),
            "arguments": ", ".join(f"{k}={v!r}" for k, v in critic[row["name"]].defaults.items()),
        }
        for row in _registry(critic)
    ]


def _teachers() -> Rows:
    from testbed.teachers import teacher

    return [
        {**row, "arguments": ", ".join(f"{k}={v!r}" for k, v in teacher[row["name"]].defaults.items())}
        for row in _registry(teacher)
    ]


def _guides() -> Rows:
    from testbed.teachers.guides import guide

    return [
        {**row, "arguments": ", ".join(f"{k}={v!r}" for k, v in guide[row["name"]].defaults.items())}
        for row in _registry(guide)
    ]


def _verifiers() -> Rows:
    from testbed.worlds.verifiers import verifier

    return [
        {**row, "arguments": ", ".join(f"{k}={v!r}" for k, v in verifier[row["name"]].defaults.items())}
        for row in _registry(verifier)
    ]


def _sweeps() -> Rows:
    from analysis.experiment import sweeps

    rows = []
    for name, cells in sweeps().items():
        axes = {axis: sorted({getattr(c, axis) for c in cells}) for axis in ("recipe", "lag", "seed")}
        what = "; ".join(f"{axis} {', '.join(map(str, values))}" for axis, values in axes.items())
        rows.append({"name": name, "cells": len(cells), "task": cells[0].task, "axes": what})
    return rows


def _experiments() -> Rows:
    from analysis.experiment import EXPERIMENTS

    return [
        {
            "room": room,
            "name": name,
            "cells": len(EXPERIMENTS[name].table_cells()),
            "table": "yes" if EXPERIMENTS[name].keys else "no",
            "claims": len(EXPERIMENTS[name].claims),
            "what": EXPERIMENTS[name].question,
        }
        for room, names in EXPERIMENTS.rooms().items()
        for name in names
    ]


def _figures() -> Rows:
    from paper_figs.base import FIGURES

    return [
        {"name": n, "table": e.promises["data"], "what": e.promises["caption"]} for n, e in FIGURES.items()
    ]


def _claims() -> Rows:
    from analysis.judging.claims import CLAIMS, kind_of

    return [{"name": n, "kind": kind_of(e), "what": e.promises["statement"]} for n, e in CLAIMS.items()]


def _metrics() -> Rows:
    from testbed.diagnostics.metric_aliases import rows

    return [dict(row) for row in rows()]


KINDS: dict[str, Callable[[], Rows]] = {
    "fields": _fields,
    "tasks": _tasks,
    "recipes": _recipes,
    "objectives": _objectives,
    "advantages": _advantages,
    "aggregations": _aggregations,
    "mismatches": _mismatches,
    "schedules": _schedules,
    "anchors": _anchors,
    "prefixes": _prefixes,
    "critics": _critics,
    "teachers": _teachers,
    "guides": _guides,
    "verifiers": _verifiers,
    "sweeps": _sweeps,
    "experiments": _experiments,
    "figures": _figures,
    "claims": _claims,
    "metrics": _metrics,
}


ABOUT = {
    "fields": ("fields of a run, set by `testbed run … field=value`", "", ""),
    "tasks": ("worlds and token tasks", "envs", r"^@world\("),
    "recipes": ("advantage, objective and aggregation under one name", "testbed/recipes", r"^@recipe\("),
    "objectives": ("losses per token", "testbed/objectives", r"^@objective(\.variant)?\("),
    "advantages": ("advantages from rewards", "testbed/advantages", r"^@advantage(\.variant)?\("),
    "aggregations": (
        "means that turn token losses into one loss",
        "testbed/losses/aggregate.py",
        r'^    "\w+": ',
    ),
    "mismatches": ("differences between sampler and trainer", "testbed/mismatch", r"^@mismatch\("),
    "schedules": ("which version of the weights makes a sample", "testbed/staleness", r"^@schedule\("),
    "anchors": ("proximal policies", "testbed/anchors", r"^@anchor\("),
    "prefixes": ("where responses begin", "testbed/prefixes", r"^@prefix\("),
    "critics": ("value functions", "testbed/critics", r"^@critic\("),
    "teachers": ("policies to learn from", "testbed/teachers", r"^@teacher\("),
    "guides": ("answers put into groups", "testbed/teachers", r"^@guide\("),
    "verifiers": ("judges of answers", "testbed/worlds", r"^@verifier\("),
    "sweeps": ("what `testbed run NAME` runs", "analysis/experiments", r"^    cells="),
    "experiments": ("questions with runs, tables and claims", "analysis/experiments", r"^EXPERIMENT = "),
    "figures": (
        "figures of the committed tables",
        "paper_figs analysis/experiments",
        r"^@figure\(|figure=Plot\(",
    ),
    "claims": ("sentences with verdicts", "analysis/experiments", r"\.claim\("),
    "metrics": ("logged numbers", "", ""),
}
"""What a kind is, the files that define it, and how a definition starts: counting them is quick.

Kinds without files are quick to make."""

SEVERAL = ("figures", "claims")
"""Kinds that loops define too, so that the files show a lower bound."""


def count(kind: str) -> int:
    """Return how many definitions of a kind the source files hold; a lower bound for SEVERAL."""
    _, places, pattern = ABOUT[kind]
    if not places:
        return len(KINDS[kind]())
    paths = [Path(__file__).parents[2] / place for place in places.split()]
    files = [file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])]
    return sum(len(re.findall(pattern, file.read_text(encoding="utf-8"), re.M)) for file in files)


def list_all(
    kind: Annotated[str | None, typer.Argument(help=f"One of: {', '.join(KINDS)}.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """List everything of one kind that has a name; without a kind, the kinds and how many there are of each.

    Examples: testbed list    testbed list tasks    testbed list metrics --json
    """
    from testbed.cli import show
    from testbed.errors import unknown

    if kind is not None and kind not in KINDS:
        raise unknown("kind of thing", kind, KINDS)
    if json:
        show.as_json(KINDS[kind]() if kind else {name: rows() for name, rows in KINDS.items()})
    elif kind:
        show.table(KINDS[kind]())
    else:
        for name in KINDS:
            number = f"{count(name)}{'+' * (name in SEVERAL)}"
            print(f"{name:<13} {number:>5}  {ABOUT[name][0]}")
        print("All of a kind: testbed list KIND. What a name stands for: testbed show NAME.")
