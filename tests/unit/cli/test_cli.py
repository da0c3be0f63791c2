"""The command line as a newcomer meets it: one clear message, exit code 2, nothing half-written."""

import ast
import json
import subprocess
import sys

import pytest
from support.command_line import call, refused, told

from testbed import __version__
from testbed.cli import commands, listing
from testbed.cli.moved import MOVED

TINY = ["steps=4", "lag=0,2", "seed=0,1", "prompts=2", "group=2", "log_every=2"]


@pytest.mark.parametrize(
    ("words", "message"),
    [(["runn"], "No such command 'runn'"), (["run"], "No sweep was given."),
     (["run", "lag=2"], "No sweep was given before lag=2."),
     (["run", "stalenes"], "Unknown sweep 'stalenes'. Did you mean 'staleness'"),
     (["run", "staleness", "recipe=grop"], "Unknown recipe 'grop'. Did you mean 'grpo'"),
     (["run", "staleness", "lagg=3"], "Did you mean 'lag'"),
     (["exact", "grpo"], "grpo is a recipe; its objective is ppo_clip."),
     (["run", "staleness", "lag=much"], "lag is 'much'"),
     (["run", "staleness", "lag=-1"], "lag is -1, expected at least 0"),
     (["run", "staleness", "learning_rate=nan"],
      "learning_rate is nan, expected a finite number of at least 0."),
     (["run", "staleness", "learning_rate=inf"],
      "learning_rate is inf, expected a finite number of at least 0."),
     (["run", "staleness", "recipe_args.epss=1", "recipe=grpo"], "no hyperparameter 'epss'"),
     (["run", "ess-collapse", "task=running-sum"], "is a token task, which has no table of states"),
     (["run", "staleness", "task=chain"], "is a tabular world; set policy to 'tabular'"),
     (["run", "ess-collapse", "task_args.lenght=3"], "Did you mean 'length'"),
     (["run", "no-such-file.toml"], "no-such-file.toml cannot be read"),
     (["run", "ess-collapse", "--shard", "5/2"], "5/2"), (["status", "no-such-folder"], "no-such-folder"),
     (["list", "task"], "Did you mean 'tasks'"), (["show", "m2p"], "Did you mean 'm2po'"),
     (["show", "m2p", "--kind", "system"], "Unknown system 'm2p'. Did you mean 'm2po'"),
     (["show", "m2po", "--kind", "sistem"], "Did you mean 'system'"),
     (["show", "m2p", "--cite"], "Did you mean 'm2po'"),
     (["show", "chartsketcher", "--cite"], "'chartsketcher' is a system, and its source is not recorded"),
     (["list", "objectives", "family=cliped"], "Did you mean 'clipped'"),
     (["list", "objectives", "famly=clipped"], "Did you mean 'family'"),
     (["list", "claims", "--by", "verdct"], "Did you mean 'verdict'"),
     (["evidence", "figures", "stalenes"], "Did you mean 'staleness'"),
     (["evidence", "figures", "--data", "results/mine"], "No figure was given."),
     (["evidence", "judge", "ess"], "ess"), (["evidence", "pages", "atlass"], "Did you mean 'atlas'"),
     (["run", "--model", "no-such-model"], "no-such-model"),
     (["run", "staleness", "--lora"], "--lora: these options need --model FOLDER"),
     (["pretrained", "smollm2", "x", "--steps", "3"], "steps: smollm2 is not trained here"),
     (["list", "--by", "status"], "--by status counts the names of one kind; give the kind")],
)  # fmt: skip
def test_a_mistake_gets_one_message_exit_code_two_and_writes_nothing(
    capsys, tmp_path, monkeypatch, words, message
):
    monkeypatch.chdir(tmp_path)
    assert message in refused(capsys, *words)
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_runs_resumes_and_reports_itself_as_json(capsys, tmp_path):
    folder = tmp_path / "mine"
    words = ["run", "ess-collapse", *TINY, "--out", str(folder), "--workers", "0", "--quiet", "--json"]
    first = json.loads(told(capsys, *words))
    assert (first["planned"], first["done"], first["failed"]) == (4, 4, 0)
    assert {row["lag"] for row in first["summary"]} == {0, 2}
    files = {path: path.read_bytes() for path in folder.rglob("*.parquet")}
    assert call(capsys, *words)[0] == 0
    assert {path: path.read_bytes() for path in folder.rglob("*.parquet")} == files
    assert json.loads(told(capsys, "status", str(folder), "--json"))["done"] == 4


def test_a_dry_run_says_what_would_run_and_writes_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = told(capsys, "run", "bandit-grid", "--dry-run")
    assert "1,000 cells in 8 packs" in out
    one = ("run", "bandit-grid", "recipe=reinforce", "lag=0", "seed=0", "learning_rate=0.1", "--dry-run")
    _, out, err = call(capsys, *one)
    assert "1 cell in 1 pack would" in out
    assert "1 cell in 1 pack on 1 worker" in err
    assert list(tmp_path.iterdir()) == []


def test_python_runs_the_package_as_the_program_does():
    words = [sys.executable, "-m", "testbed", "--version"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == f"{__version__}\n"


@pytest.mark.parametrize("words", [[], ["evidence"]])
def test_a_command_without_words_prints_its_help(capsys, words):
    code, out, err = call(capsys, *words)
    assert (code, err) == (0, "")
    assert out.startswith(" ".join(["Usage: testbed", *words, "[OPTIONS] COMMAND"]))


def test_the_kinds_of_names_fit_on_a_screen_and_load_nothing_heavy(tmp_path):
    code = (
        "from testbed.cli import main; import sys\ntry: main(['list'])\nfinally: print(sorted(sys.modules))"
    )
    *shown, modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert len(shown) <= 24
    assert max(map(len, shown)) <= 80
    assert not {"torch", "pandas", "matplotlib"} & set(ast.literal_eval(modules))


@pytest.mark.slow
def test_quick_counts_and_names_of_a_kind_are_those_of_its_list():
    for name, kind in listing.kinds().items():
        found, rows = listing.count(kind), kind.rows()
        assert found <= len(rows) if kind.several else found == len(rows), name
        if kind.names:
            assert sorted(kind.names()) == sorted(row["name"] for row in rows), name


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [["list", "--json"], ["list", "metrics", "--json"], ["list", "objectives", "family=clipped", "--json"],
     ["show", "m2po", "cispo", "--json"], ["list", "claims", "--by", "verdict", "--json"],
     ["list", "figures", "--json"], ["run", "staleness", "--dry-run", "--json"]],
)  # fmt: skip
def test_machines_get_json(capsys, words):
    out = told(capsys, *words)
    assert json.loads(out)


def test_the_help_of_all_commands_fits_on_a_screen(capsys):
    out = told(capsys, "--help")
    names = [command.name for command in commands() if " " not in command.name]
    assert [name for name in names if f" {name} " not in out] == []
    assert len(names) <= 26
    assert len(out.splitlines()) <= 40
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("command", [command.name for command in commands() if command.function])
def test_every_command_explains_itself_with_examples(capsys, command):
    out = told(capsys, *command.split(), "--help")
    assert f"Usage: testbed {command} " in out
    assert command in {"demo", "doctor"} or out.count(f"testbed {command}") >= 2


@pytest.mark.parametrize("old", MOVED)
def test_a_name_of_an_earlier_release_is_answered_with_todays(capsys, old):
    err = refused(capsys, *old.split(), "--help")
    assert err == f"error: `testbed {old}` is now `testbed {MOVED[old]}`.\n"
    todays = [word for word in MOVED[old].split() if word.isalpha() and word.islower()]
    assert MOVED[old] == "--version" or todays[0] in {command.name.split()[0] for command in commands()}


def test_formulas_are_printed_whole_brackets_included(capsys):
    _, out, _ = call(capsys, "list", "objectives")
    assert "sg[min(W, cap)]" in out


@pytest.mark.slow
def test_the_demo_runs_end_to_end_and_does_nothing_twice(capsys, tmp_path, monkeypatch):
    from dataclasses import replace

    from analysis.experiments.real import real_model
    from analysis.sweeps.base_runs import CHAIN, TOY
    from testbed.config.run import grid
    from testbed.policies.hf import tiny_model

    small = (("digits", 2), ("modulus", 2))
    toy = replace(TOY, task_args=small, policy_args=(("width", 8),), steps=12, warm_start_steps=5)
    train, cells = tiny_model.train_base, real_model.demo_model
    cells_of = {"ess-collapse": grid(CHAIN, lag=[0, 8], seed=[0, 1], steps=[20])}
    monkeypatch.setattr("analysis.experiment.sweep", cells_of.__getitem__)
    monkeypatch.setattr(
        "paper_figs.commands.demo.arena", lambda: grid(toy, recipe=["reinforce", "grpo"], lag=[0, 4])
    )
    monkeypatch.setattr(real_model, "demo_model", lambda model: [replace(c, steps=3) for c in cells(model)])
    short = tiny_model.Lesson(steps=5)
    monkeypatch.setattr(tiny_model, "train_base", lambda *given: train(*given, lesson=short))
    words = ["demo", "--out", str(tmp_path / "demo"), "--workers", "0", "--json"]
    found = json.loads(told(capsys, *words))
    assert {(row["task"], row["lag"]) for row in found["summary"]} == {
        ("running-sum", 0), ("running-sum", 4), ("reasoning-gym", 0), ("reasoning-gym", 8),
    }  # fmt: skip
    pictures = [tmp_path / "demo" / "figures" / f"{n}.png" for n in ("ess-collapse", "ratio-tails", "arena")]
    assert [str(path) for path in pictures] == found["figures"]
    before = {path: path.read_bytes() for path in (tmp_path / "demo").rglob("*") if path.is_file()}
    assert call(capsys, *words)[0] == 0
    after = {path: path.read_bytes() for path in (tmp_path / "demo").rglob("*") if path.is_file()}
    changed = [path for path in before if before[path] != after[path] and "provenance" not in path.parts]
    assert changed == []


def test_ctrl_c_while_the_command_line_loads_says_one_word():
    interrupt = (
        "import runpy, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "runpy.run_module('testbed', run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", interrupt], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\nStopped.\n")
