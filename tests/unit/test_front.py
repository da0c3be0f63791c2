"""import testbed as tb: a short list of names, loaded when used, all of them on one page."""

import ast
import dataclasses
import json
import math
import re
import subprocess
import sys

import pytest
from support.import_graph import ROOT
from support.refusals import refuses

import testbed as tb
from testbed.logs.record import FIELDS


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


RUN = tb.Run(task="bandit", recipe="reinforce", steps=2)


def test_one_run_and_one_path_as_text_are_taken_where_several_are_expected(tmp_path):
    assert tb.sweep(RUN, tmp_path / "one", workers=0).done == 1
    assert tb.load(str(tmp_path / "one")).num_rows == 2
    row = {
        "record": 1,
        "source": "mine",
        "step": 0,
        "sample": "a",
        "group": "g",
        "mask": [True, True],
        "logp_mu": [-1.0, -2.0],
        "logp_pi": [-1.5, -2.0],
        "advantage": [1.0, 1.0],
    }
    path = tmp_path / "my.jsonl"
    path.write_text(json.dumps({name: row.get(name) for name in (*FIELDS, *row)}))
    logs = [tb.read_log(given) for given in (str(path), path, [str(path)], [path])]
    assert [one.sequences[0].logp_pi.tolist() for one in logs] == [[-1.5, -2.0]] * 4
    (row,) = tb.diagnose(logs[0], "ppo_clip").objectives
    assert row["objective"] == "ppo_clip"
    refuses("No path was given", tb.read_log, [])
    refuses(r"diagnose got a str, expected a log; tb.read_log\(paths\) reads one", tb.diagnose, str(path))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"learning_rate": math.nan}, "learning_rate is nan, expected a finite number"),
        ({"steps": 0}, "steps is 0, expected at least 1"),
        ({"lag": -1}, "lag is -1, expected at least 0"),
        ({"lag": "3"}, "lag is '3' \\(str\\), expected a valid integer"),
        ({"group": 2.5}, "group is 2.5 \\(float\\), expected a valid integer"),
    ],
)
def test_one_run_in_python_is_checked_as_a_sweep_is(change, told):
    refuses(told, tb.train, dataclasses.replace(RUN, **change))


def test_arguments_of_a_run_may_be_a_table_and_other_things_are_no_run():
    table, pairs = (
        tb.train(dataclasses.replace(RUN, task_args=given)) for given in ({"arms": 3}, (("arms", 3),))
    )
    assert str(table) == str(pairs)
    refuses("train got a list, expected one Run; tb.sweep runs several", tb.train, [RUN])
