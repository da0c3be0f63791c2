"""What the table of axes promises: no name in the code ends in a letter that the table does not have."""

import ast
import functools
import re
from collections.abc import Iterator

import pytest
from support.import_graph import ROOT

MODULES = sorted(path for package in ("envs", "testbed") for path in (ROOT / package).rglob("*.py"))


parsed = functools.cache(ast.parse)


def table() -> list[tuple[str, str]]:
    """The letters of every row of the glossary's table of axes, and its examples."""
    page = (ROOT / "docs" / "glossary.md").read_text()
    return re.findall(r"^\| ((?:`[A-Z]`(?:, )?)+) \| .+? \| (.+?) \|$", page, re.M)


def letters() -> set[str]:
    """The letters of the table; digits stand for axes of known length."""
    return set(re.findall(r"[A-Z]", " ".join(axes for axes, _ in table())))


def names(source: str) -> Iterator[str]:
    """Every name that the code gives: variables, parameters, attributes, keywords."""
    for node in ast.walk(parsed(source)):
        for field in ("id", "arg", "attr"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                yield name


def strange(source: str, known: set[str]) -> set[str]:
    """Names whose last part after an underscore is axes, some of them not in the table.

    Constants are upper-case from end to end and have no axes.
    """
    ends = ((name, re.search(r"[a-z0-9]_([A-Z][A-Z0-9]*)$", name)) for name in names(source))
    return {name for name, end in ends if end and not set(re.sub("[0-9]", "", end[1])) <= known}


@pytest.mark.slow
def test_every_axis_of_a_name_is_a_letter_of_the_table():
    known = letters()
    assert len(known) > 20
    found = {str(path.relative_to(ROOT)): strange(path.read_text(), known) for path in MODULES}
    assert not {path: sorted(axes) for path, axes in found.items() if axes}


@pytest.mark.parametrize(
    ("source", "found"),
    [("x_BO = 1", {"x_BO"}), ("def f(size_O): ...", {"size_O"}),
     ("f(size_O=1).mean_BT.share_RO", {"size_O", "share_RO"}),
     ("x_BT = x_B1 = total_R2F = MOST_O = _MOST_ROWS = 1", set())],
)  # fmt: skip
def test_a_letter_that_is_not_in_the_table_is_seen(source, found):
    assert strange(source, set("BFRT")) == found


def test_every_example_of_the_table_is_a_name_of_the_code():
    used = {name for path in MODULES for name in names(path.read_text())}
    assert not [name for _, row in table() for name in re.findall(r"`(\w+)`", row) if name not in used]


def docstrings_of(source: str) -> Iterator[str]:
    """Yield every docstring of a file."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (
            text := ast.get_docstring(node)
        ):
            yield text


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield every docstring of the code, with its file."""
    for path in MODULES:
        yield from ((path.name, text) for text in docstrings_of(path.read_text()))


def test_docstrings_write_axes_as_names_do():
    documented = re.compile(r"[a-z]\w*_([A-Z]+): [^\[\n;:()]*\[(?:\.\.\., )?([A-Z](?:, [A-Z])*)\]")
    pairs = [(file, *found) for file, text in docstrings() for found in documented.findall(text)]
    assert len(pairs) > 15
    assert not [pair for pair in pairs if pair[1] != pair[2].replace(", ", "")]


def test_shapes_in_docstrings_have_the_letters_of_the_table():
    known = letters()
    for file, text in docstrings():
        for shape in re.findall(r"\[(?:\.\.\., )?([A-Z](?:, [A-Z])+)\]", text):
            assert set(shape.split(", ")) <= known, (file, shape)


def without_actions(source: str) -> set[str]:
    """Shapes with an axis A in the docstrings of a file, if no name and no state gives it actions."""
    if any(re.search(r"[a-z0-9]_[A-Z0-9]*A[A-Z0-9]*$", name) for name in names(source)):
        return set()
    shapes = (
        shape for text in docstrings_of(source) for shape in re.findall(r"\[[\w., ]*\bA\b[\w, ]*\]", text)
    )
    return {shape for shape in shapes if "S, A" not in shape}


def test_axis_a_of_a_docstring_is_of_actions_and_never_the_cells_of_a_recipe_block():
    assert not [(path.name, shapes) for path in MODULES if (shapes := without_actions(path.read_text()))]


@pytest.mark.parametrize(
    ("names_of", "shape", "found"),
    [("x_CBT", "[A]", {"[A]"}), ("x_C", "[A, B, group]", {"[A, B, group]"}), ("pi_A", "[A]", set()),
     ("x", "[R, S, A]", set())],
)  # fmt: skip
def test_an_axis_of_actions_without_actions_is_seen(names_of, shape, found):
    assert without_actions(f'"""Return one loss per replica {shape}."""\n{names_of} = 1') == found
