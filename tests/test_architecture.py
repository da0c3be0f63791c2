"""The walls of the house: who may import whom, what loads without torch, how long help may take."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("envs", "testbed", "analysis", "paper_figs")
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
# The command line is the front door: it may open every room, but only when asked.
FRONT_DOOR = {"testbed/cli"}


def imports(path: Path, top_level_only: bool = False) -> set[str]:
    tree = ast.parse(path.read_text())
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


def is_front_door(path: Path) -> bool:
    return any(str(path.relative_to(ROOT)).startswith(door) for door in FRONT_DOOR)


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_one_way(package):
    for path in files(package):
        ours = imports(path) & {*PACKAGES, "tests"}
        if is_front_door(path):
            ours = imports(path, top_level_only=True) & {*PACKAGES, "tests"}
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
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef) and node.end_lineno:
                    docstring = ast.get_docstring(node, clean=False)
                    body = node.end_lineno - node.lineno - (docstring or "").count("\n")
                    assert body <= 60, f"{path}:{node.lineno} {node.name} has {body} lines"


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    return done.stdout


def test_the_right_hand_side_of_the_house_loads_without_torch_or_pyplot():
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


def test_a_training_cell_needs_nothing_that_a_bare_gpu_image_lacks():
    code = (
        "import sys\n"
        "blocked = 'gymnasium numba pydantic ray reasoning_gym rich typer pandas matplotlib seaborn'\n"
        "sys.modules.update(dict.fromkeys(blocked.split()))\n"
        "from testbed.config.run import Run\n"
        "from testbed.training.loop import train\n"
        "toy = Run(task='running-sum', policy='toy', steps=2, prompts=2, group=2, learning_rate=1e-3)\n"
        "print(len(train(toy)['step']))\n"
    )
    assert run_python(code).strip() == "2"


def test_help_loads_none_of_the_heavy_libraries():
    # What makes `testbed --help` slow is imports; tests/benchmarks measures the seconds.
    code = (
        "import sys\n"
        "from testbed.cli import app\n"
        "heavy = 'torch numba transformers pandas pyarrow matplotlib scipy gymnasium ray pydantic numpy'\n"
        "print(sorted(set(heavy.split()) & set(sys.modules)))\n"
    )
    assert run_python(code).strip() == "[]"
