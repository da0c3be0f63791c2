"""testbed new: the file that it writes passes its own tests and trains as it is."""

import ast
import shlex
import subprocess
import sys

import pytest

from testbed.cli import main
from testbed.cli.new import commands
from testbed.results.store import status


def call(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code, *capsys.readouterr()


def test_its_parts_are_short_and_nothing_is_written_over(capsys, tmp_path):
    file = tmp_path / "mine.py"
    code, out, _ = call(capsys, "new", file)
    assert code == 0
    assert all(command in out for command in commands(file))
    tree = ast.parse(file.read_text())
    parts = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert {"my_objective", "MyTask", "my_schedule"} < parts.keys()
    for name, node in parts.items():
        assert 5 <= node.end_lineno - node.lineno + 1 <= 16, name
    before = file.read_bytes()
    assert call(capsys, "new", file)[0] == 2
    assert file.read_bytes() == before
    code, _, err = call(capsys, "new", tmp_path / "mine.txt")
    assert (code, "does not end in .py" in err) == (2, True)


@pytest.mark.slow
def test_every_command_that_it_prints_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call(capsys, "new", "mine.py")[0] == 0
    tested, *others = commands(file := tmp_path / "mine.py")
    assert str(file) in tested
    subprocess.run([sys.executable, *shlex.split(tested)[1:], "-q"], check=True, capture_output=True)
    for command in others:
        small = ["steps=3", "warm_start_steps=2", "log_every=1"] if " run " in command else []
        code, _, err = call(capsys, *shlex.split(command.replace(" steps=100", ""))[1:], *small)
        assert code == 0, err
    assert status(tmp_path / "results" / "mine").done == 4
