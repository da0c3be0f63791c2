"""Architecture: allowed imports, what loads without torch, how long help may take."""

import ast
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from support.import_graph import (
    circle,
    loaded,
    module_files,
    module_graph,
    package_graph,
    package_of,
    parsed,
    targets,
)

ROOT = Path(__file__).parents[1]
PACKAGES = ("envs", "testbed", "analysis", "paper_figs")

# Rows of packages, from the ground up: a package imports from rows below its own, never from its own row or
# above. The picture in docs/architecture.md is drawn from this table by docs/tools/draw_architecture.py.
LAYERS = (
    ("envs", "testbed.errors", "testbed.rng"),
    ("testbed.words",),
    ("testbed.registry", "testbed.config", "testbed.data", "testbed.policies", "testbed.pipeline",
     "testbed.testing"),
    ("testbed.user_files", "testbed.losses", "testbed.mismatch", "testbed.estimators", "testbed.results"),
    ("testbed.objectives", "testbed.advantages", "testbed.diagnostics", "testbed.prefixes"),
    ("testbed.worlds",),
    ("testbed.inspection", "testbed.staleness"),
    ("testbed.stacks", "testbed.exact", "testbed.logs"),
    ("testbed.recipes", "testbed.offline"),
    ("testbed.anchors", "testbed.adapters", "testbed.critics", "testbed.teachers", "testbed.conformance"),
    ("testbed.training", "testbed.execution"),
    ("testbed.cli",),
    ("analysis",),
    ("paper_figs",),
)  # fmt: skip
# What may lie in testbed/ and analysis/ themselves; everything else is in a package.
LOOSE = {"__main__", "errors", "registry", "rng", "user_files", "words"}
TWICE = {"__init__", "pytest_plugin"}
"""Base names of several files: users name both plugins in `pytest_plugins`."""
LOOSE_IN_ANALYSIS = {"declared_plot", "experiment", "lab", "palette"}
MAY_IMPORT = {
    "envs": {"envs"},
    "testbed": {"envs", "testbed"},
    "analysis": {"envs", "testbed", "analysis"},
    "paper_figs": {"testbed", "analysis", "paper_figs"},
}
NEVER = {
    "envs": {"torch", "matplotlib", "seaborn", "pandas", "transformers"},
    "testbed": {"matplotlib", "seaborn", "pandas"},
    "analysis": set(),
    "paper_figs": {"torch"},
}
NEVER_AT_MODULE_LEVEL = {"analysis": {"torch", "matplotlib", "seaborn", "gymnasium"}}


@cache
def imports(path: Path, top_level_only: bool = False) -> set[str]:
    tree = parsed(path)
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


def files(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_one_way(package):
    for path in files(package):
        ours = imports(path) & {*PACKAGES, "tests"}
        assert ours <= MAY_IMPORT[package], f"{path} imports {ours - MAY_IMPORT[package]}"


@pytest.mark.parametrize("package", PACKAGES)
def test_heavy_libraries_stay_where_they_belong(package):
    for path in files(package):
        assert not imports(path) & NEVER[package], path
        forbidden = NEVER_AT_MODULE_LEVEL.get(package, set())
        assert not imports(path, top_level_only=True) & forbidden, path


def test_files_and_functions_keep_their_tails_short():
    for package in PACKAGES:
        for path in files(package):
            text = path.read_text()
            assert len(text.splitlines()) <= 400, f"{path} is longer than 400 lines"
            for node in ast.walk(parsed(path)):
                if isinstance(node, ast.FunctionDef) and node.end_lineno:
                    docstring = ast.get_docstring(node, clean=False)
                    body = node.end_lineno - node.lineno - (docstring or "").count("\n")
                    assert body <= 60, f"{path}:{node.lineno} {node.name} has {body} lines"


def test_every_package_is_in_the_plan_and_the_plan_has_no_other():
    planned = [package for row in LAYERS for package in row]
    assert len(planned) == len(set(planned))
    assert set(planned) | {"testbed"} == set(package_graph(module_graph()))


def test_packages_import_from_the_rows_below_their_own():
    row_of = {package: number for number, row in enumerate(LAYERS) for package in row} | {"testbed": -1}
    upward = [
        f"{name} imports {other}, which is not below it"
        for name, others in module_graph().items()
        for other in sorted(others)
        if package_of(name) != package_of(other) and row_of[package_of(other)] >= row_of[package_of(name)]
    ]
    assert upward == []


def test_training_knows_no_single_objective_and_no_single_advantage():
    for name, others in module_graph().items():
        if package_of(name) == "testbed.training":
            assert not [o for o in others if o.startswith(("testbed.objectives.", "testbed.advantages."))]


@pytest.mark.slow
def test_an_import_inside_a_function_saves_a_package_at_start():
    sources, wasted = module_files(), []
    free = sys.stdlib_module_names | set(PACKAGES)
    for name, path in sources.items():
        if not re.match(
            r"testbed\.(?!cli)|envs\.|paper_figs\.(?!commands)|analysis\.(?!commands|experiments)", name
        ):
            continue  # a command loads what it needs when it runs
        for function in ast.walk(parsed(path)):
            for node in function.body if isinstance(function, ast.FunctionDef) else ():
                needed = frozenset().union(*(loaded(each) for each in targets(node, sources)))
                extra = {each for each in needed - loaded(name) if each.split(".")[0] not in free}
                if needed and not extra and name not in needed:  # else a circle
                    wasted.append(f"{path.name}:{node.lineno}")
    assert not wasted, f"these belong at the top of their files: {', '.join(wasted)}"


def test_no_module_imports_itself_by_way_of_others():
    assert circle(module_graph()) == []


def test_no_package_imports_itself_by_way_of_others():
    assert circle(package_graph(module_graph())) == []


def test_every_folder_with_modules_is_a_package():
    # A folder whose __init__.py an ignore rule has swallowed imports here, but is missing from the wheel.
    folders = {path.parent for path in module_files().values()}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []
    kept = subprocess.run(
        ["git", "check-ignore", *map(str, folders)], cwd=ROOT, capture_output=True, text=True
    )
    assert kept.stdout == ""


def test_no_module_lies_loose_in_testbed():
    loose = {n.partition(".")[2] for n, path in module_files().items() if path.parent == ROOT / "testbed"}
    assert loose - {""} == LOOSE


def test_no_two_files_have_the_same_name():
    stems = Counter(path.stem for package in MAY_IMPORT for path in files(package))
    assert {stem for stem, times in stems.items() if times > 1} == TWICE


def test_analysis_keeps_at_most_five_loose_modules():
    loose = {path.stem for path in (ROOT / "analysis").glob("*.py")} - {"__init__"}
    assert loose <= LOOSE_IN_ANALYSIS
    assert len(LOOSE_IN_ANALYSIS) <= 5


def test_the_graph_sees_imports_inside_functions_but_not_those_for_types(tmp_path):
    package = tmp_path / "house"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "hall.py").write_text("def door():\n    from house import cellar\n    return cellar\n")
    (package / "cellar.py").write_text("import house.attic\n")
    typing = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.hall import door\n"
    (package / "attic.py").write_text(typing)
    graph = module_graph(tmp_path, ("house",))
    assert graph["house.hall"] == {"house.cellar"}
    assert circle(graph) == []
    (package / "attic.py").write_text(typing.replace("if TYPE_CHECKING:", "if True:"))
    module_graph.cache_clear()
    parsed.cache_clear()
    path = circle(module_graph(tmp_path, ("house",)))
    assert path[0] == path[-1]
    assert set(path) == {"house.hall", "house.cellar", "house.attic"}


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    return done.stdout


def test_packages_without_training_load_without_torch_or_pyplot():
    code = (
        "import importlib, pkgutil, sys\n"
        "for name in ('analysis', 'paper_figs'):\n"
        "    package = importlib.import_module(name)\n"
        "    for module in pkgutil.walk_packages(package.__path__, name + '.'):\n"
        "        if not module.name.endswith('__main__'):\n"
        "            importlib.import_module(module.name)\n"
        "print(sorted({'torch', 'matplotlib.pyplot', 'transformers'} & set(sys.modules)))\n"
    )
    assert run_python(code).strip() == "[]"


def test_help_loads_none_of_the_heavy_libraries():
    # What makes `testbed --help` slow is imports; tests/benchmarks measures the seconds.
    code = (
        "import sys\n"
        "from testbed.cli import command_line\n"
        "command_line()\n"
        "heavy = 'torch numba transformers pandas pyarrow matplotlib scipy gymnasium ray pydantic numpy'\n"
        "print(sorted(set(heavy.split()) & set(sys.modules)))\n"
    )
    assert run_python(code).strip() == "[]"
