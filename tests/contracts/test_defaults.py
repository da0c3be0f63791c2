"""Every default of a function is the one that the golden file holds.

A default is what a user gets who says nothing, and most tests say what they need. `TESTBED_WRITE_RESULTS=1`
writes the file anew; a line has the module, the function, and its arguments with their defaults.
"""

import ast
import os
from collections.abc import Iterator
from pathlib import Path

from support.results import ROOT

GOLDEN = ROOT / "tests" / "golden" / "defaults.tsv"
AREAS = ("testbed", "envs", "analysis/judging")


def defaults(body: list[ast.stmt], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield the name of every function with defaults, and these as text; fields of a class are arguments."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            fields = [each for each in node.body if isinstance(each, ast.AnnAssign) and each.value]
            if told := [f"{ast.unparse(each.target)}={ast.unparse(each.value)}" for each in fields]:
                yield before + node.name, " ".join(told)
            yield from defaults(node.body, f"{before}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            args = node.args
            plain = [*args.posonlyargs, *args.args]
            pairs = [
                *zip(plain[len(plain) - len(args.defaults) :], args.defaults, strict=True),
                *zip(args.kwonlyargs, args.kw_defaults, strict=True),
            ]
            if told := [f"{name.arg}={ast.unparse(value)}" for name, value in pairs if value]:
                yield before + node.name, " ".join(told)


def test_every_default_is_what_the_golden_file_holds():
    found = [
        "\t".join((path.relative_to(ROOT).as_posix(), *row))
        for area in AREAS
        for path in sorted(Path(ROOT / area).rglob("*.py"))
        for row in defaults(ast.parse(path.read_text()).body)
    ]
    if os.environ.get("TESTBED_WRITE_RESULTS"):
        GOLDEN.write_text("\n".join(found) + "\n")
    held = GOLDEN.read_text().splitlines()
    assert [line for line in held if line not in set(found)] == [], "no longer there"
    assert [line for line in found if line not in set(held)] == [], "not in the golden file"
