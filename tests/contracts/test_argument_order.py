"""A name that stands for one parameter of a function is not passed as another.

Two arguments in each other's place are often right for the types, and for every test whose inputs are alike.
Names of arguments and parameters tell in about half of all pairs of neighbors.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from support.import_graph import parsed

ROOT = Path(__file__).parents[2]
PACKAGES = ("envs", "testbed", "analysis", "paper_figs")

MEANT = {
    ("unknown", "kind"),  # the name of something unknown is often a kind itself
    ("narrowed", "kind"),
    ("require", "name"),
    ("replace", "path"),  # os.replace
    ("normalize", "x"),  # in place
    ("product", "x"),
    ("Part", "pack"),
    ("scale_of", "largest"),
    ("Item", "entry"),
    ("_more", "lost"),  # bets on fewer mirror those on more
    ("_more", "won"),
    ("_below", "x"),
    ("apply", "x"),
    ("SetWorld", "full_SAF"),
    ("short_of", "least"),
    ("Design", "length"),
    ("Experiment", "arms"),  # a function that names arms
    ("plot", "y"),  # of matplotlib
    ("LoggedSequence", "advantage"),  # one number for each token
    *((function, name) for function in ("load", "load_some", "store") for name in "aijx"),  # indices
}
"""Function and argument that stands elsewhere on purpose."""


def parameters(node: ast.FunctionDef, method: bool) -> list[str]:
    static = any(isinstance(each, ast.Name) and each.id == "staticmethod" for each in node.decorator_list)
    names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
    return names[1:] if (method and not static) or names[:1] == ["typing_context"] else names


def fields(node: ast.ClassDef) -> list[str]:
    return [each.target.id for each in node.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)]  # fmt: skip


@cache
def signatures() -> dict[str, list[list[str]]]:
    """Parameters by the name of a function, method or class; several where the name occurs more than once."""
    found = defaultdict(list)
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        methods = set()
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                inside = [each for each in node.body if isinstance(each, ast.FunctionDef)]
                methods |= set(inside)
                starts = [parameters(each, True) for each in inside if each.name == "__init__"]
                found[node.name] += starts or [fields(node)]
                for each in inside:
                    found[each.name].append(parameters(each, True))
            elif isinstance(node, ast.FunctionDef) and node not in methods:
                found[node.name].append(parameters(node, False))
    return found


def name_of(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript | ast.Starred):
        node = node.value
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def misplaced(call: ast.Call, known: dict[str, list[list[str]]]) -> set[str]:
    """Arguments whose name is that of another parameter, in every function that the call may mean."""
    function = name_of(call.func)
    given = [name_of(each) for each in call.args]
    if any(isinstance(each, ast.Starred) for each in call.args):
        return set()
    found = []
    for names in known.get(function, []):
        keywords = [each for each in call.keywords if each.arg in names]
        if len(given) > len(names):
            continue
        places = [*zip(names, given, strict=False), *((k.arg, name_of(k.value)) for k in keywords)]
        right = {value for name, value in places if value == name}
        found.append({v for name, v in places if v and v != name and v in names and v not in right})
    return set.intersection(*found) if found else set()


def calls(package: str) -> Iterator[tuple[Path, ast.Call]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        yield from ((path, node) for node in ast.walk(parsed(path)) if isinstance(node, ast.Call))


@pytest.mark.parametrize("package", PACKAGES)
def test_an_argument_named_as_another_parameter_is_in_its_place(package):
    found = [
        f"{path.relative_to(ROOT)}:{call.lineno}: {name} in {name_of(call.func)}(…)"
        for path, call in calls(package)
        for name in sorted(misplaced(call, signatures()))
        if (name_of(call.func), name) not in MEANT
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("f(low, high)", set()),
        ("f(high, low)", {"low", "high"}),
        ("f(self.high, self.low)", {"low", "high"}),
        ("f(1, low)", {"low"}),
        ("f(high)", {"high"}),
        ("f(low=high, high=low)", {"low", "high"}),
        ("f(low[0], high)", set()),
        ("f(a, b)", set()),
        ("g(high, low)", set()),
    ],
)
def test_arguments_in_each_others_place_are_found(text, names):
    known = {"f": [["low", "high"]], "g": [["low", "high"], ["high", "low"]]}
    assert misplaced(ast.parse(text).body[0].value, known) == names
