"""import testbed as tb: a short list of names, loaded when used, all of them on one page."""

import ast
import re
import subprocess
import sys

import pytest
from support.import_graph import ROOT

import testbed as tb


def test_the_import_loads_nothing_but_itself():
    code = (
        "import sys\nbefore = set(sys.modules)\nimport testbed\n"
        "print(sorted(name for name in set(sys.modules) - before if name.split('.')[0] not in {'testbed'}))\n"
        "print(sorted(name for name in sys.modules if name.startswith('testbed.')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    others, ours = map(ast.literal_eval, done.stdout.splitlines())
    assert {name.split(".")[0] for name in others} <= set(sys.stdlib_module_names)
    assert ours == []


def test_there_are_about_forty_names_and_every_one_of_them_is_there():
    assert 35 <= len(tb.__all__) <= 45
    for name in tb.__all__:
        assert getattr(tb, name) is not None
        assert name in dir(tb)
    with pytest.raises(AttributeError, match="no attribute 'esss'"):
        _ = tb.esss


def test_what_a_type_checker_sees_is_what_is_loaded():
    tree = ast.parse((ROOT / "testbed" / "__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    typed = {alias.asname: f"{node.module}:{alias.name}"
             for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}  # fmt: skip
    assert typed == tb._PLACES


def test_the_page_has_every_name_and_no_other():
    page = (ROOT / "docs" / "python.md").read_text()
    assert sorted(re.findall(r"(?m)^\| `tb\.(\w+)`", page)) == sorted(set(tb.__all__) - {"__version__"})
