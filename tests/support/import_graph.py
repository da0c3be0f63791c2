"""Who imports whom, read from the source: modules, packages, circles."""

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOP = ("envs", "testbed", "analysis", "paper_figs")
Graph = Mapping[str, frozenset[str]]


@cache
def module_files(root: Path = ROOT, top: tuple[str, ...] = TOP) -> dict[str, Path]:
    """Return every module's file by its dotted name, a package's by that of the package."""
    files = {}
    for package in top:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


@cache
def parsed(path: Path) -> ast.Module:
    """Return a file's syntax tree."""
    return ast.parse(path.read_text())


@cache
def module_graph(root: Path = ROOT, top: tuple[str, ...] = TOP) -> Graph:
    """Return what every module imports of ours, at its top and inside functions, but not for types alone."""
    files = module_files(root, top)
    return {name: frozenset(imported(path, files) - {name}) for name, path in files.items()}


def imported(path: Path, files: Mapping[str, Path]) -> set[str]:
    """Return the modules of ours that a file imports. What stands under `if TYPE_CHECKING` never runs."""
    tree = parsed(path)
    for_types = {
        id(inside)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inside in ast.walk(statement)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively; write the package's name"
            found |= {
                full if (full := f"{node.module}.{alias.name}") in files else node.module or ""
                for alias in node.names
            }
    return found & set(files)


def targets(node: ast.stmt, files: Mapping[str, Path]) -> set[str]:
    """Return what an import statement loads: modules of ours, and foreign packages to two parts."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        full = [f"{node.module}.{alias.name}" for alias in node.names]
        names = [name if name in files else node.module or "" for name in full]
    else:
        return set()
    return {name if name in files else ".".join(name.split(".")[:2]) for name in names}


@cache
def loaded(name: str) -> frozenset[str]:
    """Return all that importing a module loads, itself and the packages around it included."""
    found, waiting = set[str](), [name]
    while waiting:
        if (module := waiting.pop()) not in found:
            found.add(module)
            waiting += _loaded_first(module)
    return frozenset(found)


@cache
def _loaded_first(module: str) -> frozenset[str]:
    """Return what a module's own statements load at its top, and the package around it."""
    files = module_files()
    if module not in files:
        return frozenset()
    around = [module.rpartition(".")[0]] if "." in module else []
    return frozenset(around).union(*(targets(node, files) for node in parsed(files[module]).body))


def package_of(module: str) -> str:
    """Return the package that a module is in: a package of testbed, or another top package whole.

    The modules that lie in testbed/ itself (errors, registry, …) count as packages; `python -m testbed`
    is the command line.
    """
    if module == "testbed.__main__":
        return "testbed.cli"
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "testbed" else parts[0]


def package_graph(modules: Graph) -> Graph:
    """Return which packages import which others."""
    packages: dict[str, set[str]] = {package_of(name): set() for name in modules}
    for name, others in modules.items():
        packages[package_of(name)] |= {package_of(other) for other in others} - {package_of(name)}
    return {name: frozenset(others) for name, others in packages.items()}


def circle(graph: Graph) -> list[str]:
    """Return one circle of the graph as a path that ends where it begins, [] where there is none."""
    done: set[str] = set()

    def follow(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        for other in sorted(graph[name]):
            if found := follow(other, [*path, name]):
                return found
        done.add(name)
        return []

    return next((found for name in sorted(graph) if (found := follow(name, []))), [])


def reduced(graph: Graph) -> Graph:
    """Return the graph without the arrows that a longer way says too (its transitive reduction)."""

    @cache
    def reachable(name: str) -> frozenset[str]:
        return frozenset().union(*({other} | reachable(other) for other in graph[name]))

    return {
        name: frozenset(o for o in others if not any(o in reachable(via) for via in others if via != o))
        for name, others in graph.items()
    }
