"""Digests of the inputs of a verdict: the experiment's file, its table, and the code that judges.

A verdict is judged again when one of the three has changed. The code of a claim on a table is every module of
`analysis` that its file or the gates import, directly or not. Objections to its claims, how its arms are set,
and its sources' statements on drift count as code. A computation also depends on the packages of `testbed`
and `envs`, with their tables.
"""

import ast
import csv
import functools
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

from analysis.experiment import EXPERIMENTS
from analysis.judging.source_drift import spoken
from analysis.judging.table_gates import SETTINGS, UNMEASURED
from analysis.tables.committed import REMEASURED

ROOT = Path(__file__).parents[2]
LENGTH = 12
GATES, OBJECTIONS = "analysis.judging.gates", Path(__file__).with_name("objections.csv")


def of_question(experiment: str) -> str:
    """Return the digest of the experiment's file: question, margins, claims and how they are judged."""
    return _short(_file(EXPERIMENTS.module(experiment)).read_bytes())


def of_code(experiment: str, computed: bool) -> str:
    """Return the digest of all code that an experiment's claims run when they are judged.

    computed: whether a claim is decided by a computation in `testbed` and `envs`.
    """
    start = EXPERIMENTS.module(experiment)
    modules = (_reached(start) | _reached(GATES)) - {start}
    parts = sorted(each for each in modules if each.startswith("analysis."))
    found = [_of_file(_file(each)) for each in parts]
    if computed:
        folders = {tuple(each.split(".")[:2]) for each in modules if not each.startswith("analysis.")}
        found += [_of_package(folder) for folder in sorted(folders)]
    again = REMEASURED / f"{experiment}.csv"
    found += [_of_file(again)] if again.exists() else []
    found += [UNMEASURED.get(experiment, "")]
    named = (experiment, *EXPERIMENTS[experiment].claims)
    found += [f"{name} {SETTINGS[name]}" for name in named if name in SETTINGS]
    found += [str(spoken()[each]) for each in EXPERIMENTS[experiment].judges() if each in spoken()]
    found += [f"{claim} {said}" for claim, said in _objected() if claim in EXPERIMENTS[experiment].claims]
    return _short("".join(found).encode())


@functools.cache
def _objected() -> tuple[tuple[str, str], ...]:
    with OBJECTIONS.open(newline="", encoding="utf-8") as file:
        return tuple((row["claim"], f"{row['gate']} {row['why']}") for row in csv.DictReader(file))


TRAIN_THE_TOY = {
    *("analysis.arena", "analysis.worlds.edited_training", "analysis.worlds.tuned_training"),
    "analysis.sweeps.base_runs",
}
"""Modules through which a computed table trains the toy transformer."""

HUGGING_FACE = {"testbed.policies.hf.hf_policy", "analysis.worlds.hf_bases", "analysis.arena.foretold_runs"}
"""Modules through which a computed table comes from a Hugging Face model."""


def trains(experiment: str) -> bool:
    """Return whether an experiment's computed table holds training runs of the toy transformer."""
    return bool(TRAIN_THE_TOY & set(_imports(EXPERIMENTS.module(experiment))))


def loads_a_model(experiment: str) -> bool:
    """Return whether an experiment's computed table comes from a Hugging Face model."""
    return bool(HUGGING_FACE & set(_imports(EXPERIMENTS.module(experiment))))


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:LENGTH]


@functools.cache
def _of_file(path: Path) -> str:
    return _short(path.read_bytes())


@functools.cache
def _of_package(parts: tuple[str, ...]) -> str:
    """Return the digest of a package's files, or of a loose module's. Registries import them by name."""
    folder = ROOT.joinpath(*parts)
    files = sorted([*folder.rglob("*.py"), *folder.rglob("*.csv")]) or [folder.with_suffix(".py")]
    return _short("".join(_of_file(path) for path in files).encode())


def _file(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    found = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not found.is_file() and (loaded := sys.modules.get(module)) and loaded.__file__:
        return Path(loaded.__file__)  # an experiment outside the repository
    return found


def _reached(start: str) -> set[str]:
    """Return the project's modules that a module imports, directly or not."""
    found, todo = {start}, [start]
    while todo:
        new = set(_imports(todo.pop())) - found
        found |= new
        todo += new
    return found


@functools.cache
def _imports(module: str) -> tuple[str, ...]:
    tree = ast.parse(_file(module).read_text(encoding="utf-8"))
    return tuple(dict.fromkeys(name for node in ast.walk(tree) for name in _named(node)))


def _named(node: ast.AST) -> Iterator[str]:
    """Yield the project's modules that an import statement names."""
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    for name in names:
        if name.split(".")[0] in ("analysis", "testbed", "envs") and _file(name).is_file():
            yield name
