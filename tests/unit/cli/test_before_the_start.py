"""What `testbed run` says before anything runs, and what of a folder that lost something."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.command_line import call, refused

from testbed import __version__, cli
from testbed.cli import run_sweep
from testbed.cli.run_sweep import dtype_notes
from testbed.cli.slow_notice import slow_notice
from testbed.config.run import MODEL_RUN, Run
from testbed.execution.cost import Cost

SMALL = ["ess-collapse", "steps=4", "lag=0", "seed=0", "prompts=2", "group=2", "log_every=2"]


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--shard", "11/10"], "Shard '11/10' does not exist"),
     (["--timeout", "-3"], "timeout is -3 s, expected more than 0"),
     (["device=cuda", "task=running-sum", "policy=toy"], "torch sees no GPU")],
)  # fmt: skip
def test_a_dry_run_refuses_what_the_run_would(capsys, monkeypatch, words, message):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert message in refused(capsys, "run", *SMALL, *words, "--dry-run")


def test_a_dry_run_of_a_shard_counts_that_shard(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert "1 cell in 1 pack would" in call(capsys, "run", *SMALL, "--dry-run", "--shard", "1/2")[1]
    assert (
        "0 cells in 0 packs, part 2/2 of 1 cell,"
        in call(capsys, "run", *SMALL, "--dry-run", "--shard", "2/2")[1]
    )


def test_what_is_refused_leaves_no_word_about_its_progress(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    assert " of 0 cells" not in refused(capsys, "run", *SMALL, "--out", "mine", "--workers", "0")


def test_a_lag_as_long_as_the_run_gets_a_word_unless_quiet(capsys):
    _, _, err = call(capsys, "run", *SMALL[:2], "lag=4", "seed=0", "--dry-run")
    assert "lag 4 in a run of 4 steps: every step learns from data of the start weights" in err
    assert call(capsys, "run", *SMALL[:2], "lag=4", "seed=0", "--dry-run", "--quiet")[2] == ""
    assert "lag 2" not in call(capsys, "run", *SMALL[:2], "lag=2", "seed=0", "--dry-run")[2]


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "mine.toml is empty, expected a table [run]"),
     ("[run]\nlag = 3\n[grid]\nseed = [1,\n", "mine.toml:4: "), ("[run]\nlag = = 3\n", "mine.toml:2: ")],
)  # fmt: skip
def test_a_sweep_file_that_says_nothing_or_breaks_off_is_refused_with_its_line(
    capsys, monkeypatch, tmp_path, text, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(text)
    assert message in refused(capsys, "run", "mine.toml", "--dry-run")


def test_the_version_is_an_option_too(capsys):
    assert call(capsys, "--version")[:2] == (0, f"{__version__}\n")


@pytest.mark.slow
def test_a_damaged_result_is_told_as_damaged_and_run_again(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    words = ["run", *SMALL, "--out", "mine", "--workers", "0"]
    assert call(capsys, *words)[0] == 0
    (file,) = (tmp_path / "mine" / "packs").iterdir()
    file.write_bytes(file.read_bytes() + b"x")
    assert (
        "1 pending cell had a damaged result; the next run makes it again."
        in call(capsys, "status", "mine")[1]
    )
    assert "Set aside: 1 damaged file;" in refused(
        capsys, "evidence", "figures", "ess-collapse", "--data", "mine"
    )
    assert "Results of 1 cell were damaged; these cells run again." in call(capsys, *words)[2]
    assert json.loads(call(capsys, "status", "mine", "--json")[1])["damaged"] == 0


def test_whoever_waits_is_told_why_and_nobody_else(capsys):
    with slow_notice("compiling", after=0.01):
        time.sleep(0.1)
    with slow_notice("not told", after=10):
        pass
    assert capsys.readouterr().err == "compiling\n"


@pytest.mark.parametrize(
    "words",
    ["diagnose pipe.jsonl", "run pipe.toml", "exact pipe.py:mine", "run --data=pipe.jsonl",
     "diagnose /dev/zero"],
)  # fmt: skip
def test_a_pipe_in_place_of_a_file_is_refused_not_waited_for(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("pipe.jsonl", "pipe.toml", "pipe.py"):
        os.mkfifo(name)
    code, _, said = call(capsys, *words.split())
    assert (code, "is a pipe or a device, expected a file" in said) == (2, True)


@pytest.mark.parametrize(("times", "noted"), [(9.0, True), (0.25, False)])
def test_bfloat16_is_noted_where_the_cpu_is_slow_at_it(monkeypatch, times, noted):
    monkeypatch.setattr("testbed.policies.hf.options.bfloat16_slowdown", lambda: times)
    cell = replace(MODEL_RUN, model="any", policy_args=(("dtype", "bfloat16"),))
    said = [*dtype_notes([cell])]
    assert len(said) == noted
    assert all("9 times as long in bfloat16" in line and "dtype=float32 is faster" in line for line in said)
    assert not [*dtype_notes([replace(cell, device="cuda")])]
    assert not [*dtype_notes([replace(cell, policy_args=())])]


def test_a_model_can_be_trained_in_this_process(monkeypatch):
    asked = []
    monkeypatch.setattr(run_sweep, "own_model", lambda *_: (Run(),))
    monkeypatch.setattr(run_sweep, "describe", lambda *_: None)
    monkeypatch.setattr(run_sweep, "cost_of", lambda _, workers, *__: asked.append(workers) or Cost(*[0] * 5))
    for workers in (None, 0, 2):
        run_sweep.run(model=Path("m"), workers=workers, dry_run=True, quiet=True)
    assert asked == [1, 0, 2]


@pytest.mark.parametrize(
    ("words", "message"),
    [(["run", "--model", "m", "--verifier", "number"], "about the problems of --data"),
     (["run", "staleness", "--verifier", "number"], "--verifier: these options need --model"),
     (["conform", "a.py:b", "--as", "grpo", "--page", "x.md"], "about the losses of installed packages"),
     (["pipeline", "--reach", "0.5"], "--reach is the target return of a sweep"),
     (["exact", "ppo_clip", "baseline=far"], "expected a number, or optimal")],
)  # fmt: skip
def test_an_option_that_would_do_nothing_or_makes_no_sense_is_refused(words, message, capsys):
    assert message in refused(capsys, *words)


def test_an_error_of_a_library_without_a_number_keeps_its_words(monkeypatch, capsys):
    def fails(*_, **__):
        raise OSError("no file named config.json")

    monkeypatch.setattr(cli, "command_line", lambda: fails)
    assert "A file: no file named config.json." in refused(capsys, "list")
