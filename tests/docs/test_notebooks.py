"""The notebooks run from top to bottom; what they call exact is printed again, the rest in the same form."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
NUMBER = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")
LARGEST = 60_000
"""Bytes of a notebook with its outputs."""


def tool():
    spec = importlib.util.spec_from_file_location("run_notebooks", DOCS / "tools" / "run_notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def printed(outputs):
    return "".join(line for output in outputs for line in output.get("text", ()))


def test_both_notebooks_are_there_small_and_have_been_run():
    assert [path.stem for path in NOTEBOOKS] == ["staleness-in-15-minutes", "test-your-own-estimator"]
    for path in NOTEBOOKS:
        assert path.stat().st_size < LARGEST
        notebook = json.loads(path.read_text(encoding="utf-8"))
        code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
        assert any("exact" in cell["metadata"].get("tags", ()) for cell in code)


def test_running_a_notebook_leaves_the_file_as_it_is(tmp_path):
    file = tmp_path / "n.ipynb"
    file.write_text(json.dumps({"cells": [{"cell_type": "code", "id": "a", "source": ["print(1 + 1)"]}]}))
    before = file.read_bytes()
    command = [sys.executable, DOCS / "tools" / "run_notebooks.py", file]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert file.read_bytes() == before
    made = json.loads((tmp_path / "out" / "notebooks" / "n.ipynb").read_text())
    assert made["cells"][0]["outputs"][0]["text"] == ["2\n"]
    subprocess.run([*command, "--write"], cwd=tmp_path, check=True)
    assert json.loads(file.read_text()) == made


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_prints_what_it_says(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    before = torch.get_default_dtype()
    try:
        again = tool().run(notebook)
    finally:
        torch.set_default_dtype(before)
    for cell, outputs in zip(code, again, strict=True):
        then, now = printed(cell["outputs"]), printed(outputs)
        if "exact" in cell["metadata"].get("tags", ()):
            assert now == then
        else:
            assert NUMBER.sub("#", now) == NUMBER.sub("#", then)
        assert [o["output_type"] for o in outputs] == [o["output_type"] for o in cell["outputs"]]
