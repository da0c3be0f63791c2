"""docs/adapters.md: its calls work, and the names in its tables exist."""

import ast
import re
from pathlib import Path

import pytest

from testbed.adapters.trl import grpo_trainer
from testbed.adapters.verl import policy_loss
from testbed.objectives import objective
from testbed.recipes.composition import Term

TEXT = (Path(__file__).parents[3] / "docs" / "adapters.md").read_text()


def test_the_calls_on_the_documentation_page_work():
    namespace = {"grpo_trainer": grpo_trainer, "policy_loss": policy_loss, "Term": Term}
    pytest.importorskip("trl")
    made = []
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("grpo_trainer", "policy_loss"):
                made.append(eval(ast.unparse(node), namespace))
    assert len(made) == 4
    assert all(callable(x) for x in made)


def test_the_objectives_in_the_table_of_parity_exist_and_are_compared():
    rows = [line.split("|")[2] for line in TEXT.split("## Parity")[1].splitlines() if line.startswith("| ")]
    named = {name for row in rows for name in re.findall(r"`([a-z_@-]+)`", row)}
    assert len(named) >= 12
    assert named - {"use_bias_correction_kl"} <= set(objective)
    tests = Path(__file__).parents[1] / "objectives"
    source = (tests / "test_trl_parity.py").read_text() + (tests / "test_trl_correction.py").read_text()
    assert all(f'"{name}"' in source for name in named - {"use_bias_correction_kl"})
