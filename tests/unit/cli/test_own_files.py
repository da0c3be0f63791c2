"""A user's own objective, task and schedule: nothing given is dropped, nothing wrong starts.

User code that ends the program, or raises what cannot be printed: one message, never 0 without a word.
testbed new: the file that it writes passes its own tests and trains as it is.
"""

import ast
import json
import shlex
import subprocess
import sys

import pytest
from support.command_line import call, refused, told
from support.refusals import as_written

from testbed.cli.new import commands
from testbed.cli.run_sweep import resolve
from testbed.results.store import status

OWN = """
from envs.tokens.running_sum import RunningSum
from testbed.losses.ratios import log_token
from testbed.losses.score_loss import score_loss
from testbed.staleness import schedule


def capped(logp_BT, batch, *, cap: float = 2.0):
    return score_loss(log_token(logp_BT, batch).exp().clamp(max=cap), logp_BT, batch)


def lost(logp_BT, batch):
    return logp_BT * float("nan")


def broken(logp_BT, batch):
    return batch.nothing


def broken_late(logp_BT, batch):
    return batch.nothing if logp_BT.dim() > 2 else -logp_BT


def later(lag, *, more: int = 0):
    return schedule["exact"].bind()(lag + more)


class Half(RunningSum):
    def __init__(self, *, digits: int = 3):
        super().__init__(digits=digits)

    def score(self, *given):
        return super().score(*given) / 2


class Needy(RunningSum):
    def __init__(self, digits):
        super().__init__(digits=digits)
"""
SMALL = [
    "staleness", "lag=0", "seed=0", "steps=4", "warm_start_steps=0", "prompts=2", "group=2", "log_every=2",
]  # fmt: skip
DIGITS = "task_args.digits=3"


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


def test_hyperparameters_reach_an_own_objective_and_make_cells_of_their_own(own):
    cells = resolve("staleness", [*SMALL[1:], "recipe_args.cap=1,2"], ["own.py:capped"])
    assert [dict(cell.recipe_args) for cell in cells] == [{"cap": 1}, {"cap": 2}]
    joined = resolve("staleness", [*SMALL[1:], "recipe=topr", "recipe_args.cap=1"], ["own.py:capped"])
    assert {cell.recipe.partition("#")[0] for cell in joined} == {"topr", "own.py:capped"}


def test_hyperparameters_of_a_named_sweep_stay_with_its_recipes(own):
    (before,) = {dict(c.recipe_args).get("cap") for c in resolve("staleness", SMALL[1:], ["own.py:capped"])}
    assert before is None


def test_those_of_a_sweep_file_are_the_users_own_and_stay(own):
    (own / "mine.toml").write_text("[run]\nrecipe_args = {cap = 3}\n")
    (cell,) = resolve("mine.toml", [], ["own.py:capped"])
    assert dict(cell.recipe_args) == {"cap": 3}


def test_advantage_aggregation_and_step_rule_of_an_own_objective_are_dials(own):
    from testbed.recipes import recipe

    made = recipe["own.py:capped"].bind(
        cap=1.5, advantage="raw", aggregation="sequence_mean", ess_reference=0.5, kl_limit=0.1
    )()
    assert (made.advantage, made.aggregation, made.hyper(0, 1)) == ("raw", "sequence_mean", {"cap": 1.5})
    assert (made.step_rule.ess_reference, made.step_rule.kl_limit) == (0.5, 0.1)


def test_a_registered_recipe_takes_another_advantage_and_keeps_the_rest():
    from testbed.errors import UserError
    from testbed.recipes import recipe

    plain, other = recipe["topr"].bind()(), recipe["topr"].bind(advantage="nsr")()
    assert (other.advantage, other.advantage_args) == ("nsr", ())
    assert other.aggregation == plain.aggregation
    with pytest.raises(UserError, match="no hyperparameter 'advantages'"):
        recipe["topr"].bind(advantages="nsr")


@pytest.mark.parametrize(
    "words",
    ["recipe=own.py:capped recipe_args.nosuch=1", "recipe=own.py:capped recipe_args.cap=much",
     "recipe=own.py:capped recipe_args.ess_rule=cubic", "recipe=own.py:capped recipe_args.advantage=best",
     "recipe=grpo recipe_args.eps_high=abc", "recipe=grpo policy_args.lora=8",
     "recipe=grpo policy_args.width=x", "staleness=uniform staleness_args.span=x",
     "staleness=own.py:capped", "task=own.py:Needy", "task=own.py:later", "--objective own.py"],
)  # fmt: skip
def test_what_cannot_run_is_refused_before_the_start(capsys, own, words):
    err = refused(capsys, "run", *SMALL, DIGITS, *words.split(), "--quiet")
    as_written(err)
    assert len(err.splitlines()) == 1
    assert [path.name for path in own.iterdir() if path.name != "__pycache__"] == ["own.py"]


@pytest.mark.slow
def test_a_task_and_a_schedule_in_a_file_are_trained_under_the_names_of_their_version(capsys, own):
    words = ["task=own.py:Half", "staleness=own.py:later", "staleness_args.more=2", "recipe=grpo"]
    end = ["--out", "mine", "--workers", "0", "--quiet", "--json"]
    (row,) = json.loads(told(capsys, "run", *SMALL, DIGITS, *words, *end))["summary"]
    assert row["task"].startswith("own.py:Half#")
    from testbed.results.store import read

    frame = read("mine").to_pandas()
    assert set(frame["staleness"].str.partition("#")[0]) == {"own.py:later"}
    assert frame["staleness/age_max_token"].max() == 2


@pytest.mark.parametrize("words", [("exact", "own.py:broken"), ("objectives", "compare", "own.py:broken")])
def test_the_line_of_an_error_is_told_wherever_an_own_objective_is_called(capsys, own, words):
    err = refused(capsys, *words)
    assert f"own.py:{1 + OWN.splitlines().index('    return batch.nothing')}, in broken" in err
    assert "AttributeError" in err
    assert len(err.splitlines()) == 1


@pytest.mark.slow
def test_an_error_inside_an_own_objective_shows_its_file_and_line(capsys, own):
    end = ["--out", "mine", "--workers", "0", "--quiet"]
    code, _, err = call(capsys, "run", *SMALL, DIGITS, "recipe=grpo,own.py:broken", *end)
    line = 1 + OWN.splitlines().index("    return batch.nothing")
    assert (code, f"own.py:{line}, in broken: AttributeError" in err) == (2, True)
    assert not (own / "mine").exists(), "it is called once before anything is written"
    assert call(capsys, "run", *SMALL, DIGITS, "recipe=grpo,own.py:broken_late", *end)[0] == 1
    _, out, _ = call(capsys, "status", "mine")
    line = 1 + OWN.splitlines().index("    return batch.nothing if logp_BT.dim() > 2 else -logp_BT")
    assert f"own.py:{line}, in broken_late: AttributeError" in out
    assert "(2 cells that share one pack and fail together: pack" in out


@pytest.mark.slow
@pytest.mark.parametrize("sweep", ["staleness", "ess-collapse"])
def test_divergence_is_in_the_table_and_in_the_closing_lines(capsys, own, sweep):
    fields = SMALL[1:] if sweep == "staleness" else ["lag=0", "seed=0,1", "steps=4", "prompts=2", "group=2"]
    end = ["recipe=grpo,own.py:lost", "--out", "mine", "--workers", "0", "--quiet"]
    out = told(capsys, "run", sweep, *fields, *end)
    seeds = 1 if sweep == "staleness" else 2
    cells = "1 cell" if seeds == 1 else f"{seeds} cells"
    assert f"{cells} diverged: a loss or gradient was not finite" in out
    lines = [line.rstrip() for line in out.splitlines()]
    assert any(" lost " in line and line.endswith(f"{seeds} of {seeds}") for line in lines)
    assert any("grpo" in line and line.endswith(f"0 of {seeds}") for line in lines)


HEAD = """import os
import sys
from envs.tokens.running_sum import RunningSum


class Gone(BaseException):
    pass


class Mute(Exception):
    def __str__(self):
        raise ValueError


class MuteExit(Exception):
    def __str__(self):
        sys.exit(0)


"""
BAD = {
    "sys.exit(0)": "SystemExit: 0",
    "os._exit(0)": "SystemExit: 0",
    "raise Gone('away')": "Gone: away",
    "raise Mute()": "Mute, with a message that cannot be printed",
    "raise MuteExit()": "MuteExit, with a message that cannot be printed",
}
"""What user code does, and what is said of it."""
DRY = ["run", "staleness", "lag=1", "--dry-run"]
PLACES = {
    "load": ("{}", 2, ["exact", "own.py:mine", "drift=0.5"]),
    "schedule": ("def mine(lag):\n    {}\n", 2, [*DRY, "staleness=own.py:mine"]),
    "task": ("def mine(*, digits=4):\n    {}\n", 2, [*DRY, "task=own.py:mine"]),
    "score": ("class mine(RunningSum):\n    def __init__(self, *, digits=3):\n        "
              "super().__init__(digits=digits)\n\n    def score(self, *given):\n        {}\n", 1,
              ["run", "staleness", "task=own.py:mine", "recipe=reinforce", "lag=0", "seed=0", "steps=1",
               "warm_start_steps=0", "prompts=2", "group=2", "--workers", "0", "--yes"]),
}  # fmt: skip
"""Where it does it, the exit code (1: failed cells), and the command that calls it."""


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("body", BAD)
def test_what_would_end_the_program_is_one_message(tmp_path, monkeypatch, capsys, place, body):
    monkeypatch.chdir(tmp_path)
    text, code, words = PLACES[place]
    (tmp_path / "own.py").write_text(HEAD + text.format(body))
    ended, out, err = call(capsys, *words)
    assert ended == code, out + err
    assert BAD[body] in err
    assert "own.py" in err
    assert "Traceback" not in err


SILENT = (
    "class Silent(Exception):\n    def __str__(self):\n        raise KeyboardInterrupt\n\n\nraise Silent\n"
)


@pytest.mark.parametrize(
    "text", ["def mine(lag):\n    raise KeyboardInterrupt\n", "raise KeyboardInterrupt\n", SILENT]
)
def test_an_interrupt_inside_user_code_stays_an_interrupt(tmp_path, monkeypatch, capsys, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(text)
    code, _, err = call(capsys, *DRY, "staleness=own.py:mine")
    assert (code, "error" in err) == (130, False)


def test_its_parts_are_short_and_nothing_is_written_over(capsys, tmp_path):
    file = tmp_path / "mine.py"
    out = told(capsys, "new", file)
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
