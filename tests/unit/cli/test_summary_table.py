"""The closing table of a sweep: whole words, seeds and intervals, rules in footnotes, steps that work."""

import re
import shlex
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from support.command_line import call
from support.made_sweep import CELLS, STEPS, TOY, accuracy, made

from analysis.commands.summary_table import next_steps, print_summary
from testbed.cli import show
from testbed.cli.run_sweep import finish, report, summarize
from testbed.config.run import grid
from testbed.results.store import Status, status


@pytest.fixture(params=[80, 110])
def terminal(request, monkeypatch) -> int:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(request.param))
    return request.param


def printed(capsys) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)


def test_the_table_has_seeds_intervals_and_footnotes_and_breaks_no_word(tmp_path, capsys, terminal):
    print_summary(summarize(made(tmp_path / "s")))
    text = printed(capsys)
    assert all(len(line) <= terminal for line in text.splitlines())
    row = next(line for line in text.splitlines() if line.split()[:2] == ["reinforce", "64"])
    assert row.split()[2:] == ["4", "0.00", "[0.00,", "0.00]", "0.78", "0.015", "4", "of", "4"]
    text = " ".join(text.split())
    assert "task running-sum" in text
    assert "[range of the seeds]" in text
    assert "floor 1/N, here 0.016" in text
    assert "collapsed: rose by 0.2 or more, and ended with less than 50% of its best accuracy." in text


def test_ctrl_c_during_the_summary_says_what_is_done_and_how_to_print_it(tmp_path, monkeypatch):
    folder = made(tmp_path / "s")
    monkeypatch.setattr("testbed.cli.run_sweep.summarize", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt, match=rf"{len(CELLS)} of {len(CELLS)} cells done.*report {folder}"):
        finish(folder, status(folder), json=False)


def test_arguments_that_all_rows_have_stand_above_the_table(tmp_path, capsys, monkeypatch):
    """Beside a swept prompt stood the data file, the length and the verifier in every row."""
    monkeypatch.setenv("COLUMNS", "150")
    same = (("file", "mine.jsonl"), ("response_length", 4))
    cells = grid(TOY, task_args=[(*same, ("system", text)) for text in ("Be brief, x=1", "Think")])
    print_summary(summarize(made(tmp_path / "s", cells)))
    said = printed(capsys)
    assert said.count("file=mine.jsonl,response_length=4") == 1
    assert said.count("system=") == 2
    assert "Be brief, x=1" in said


def test_many_settings_with_long_names_still_break_between_words_only(tmp_path, capsys, terminal):
    settings = {"learning_rate": [1e-3, 3e-3], "warm_start_steps": [0, 600], "recipe": ["reinforce", "grpo"]}
    summary = summarize(made(tmp_path / "s", grid(TOY, **settings, seed=range(2))))
    print_summary(summary)
    text = printed(capsys)
    assert all(len(line) <= terminal for line in text.splitlines())
    words = {"learning", "rate", "warm", "start", "reinforce", "0.003", "smallest", "collapsed"}
    assert words <= set(re.findall(r"[\w.]+", text))


def test_an_own_objective_is_called_by_its_function(tmp_path, capsys):
    own = replace(TOY, recipe="a/long/way/to/mine.py:my_clip#0123456789ab")
    print_summary(summarize(made(tmp_path / "s", [TOY, own])))
    text = printed(capsys)
    assert "my_clip " in text
    assert "mine.py" not in text


def test_a_diverged_seed_is_counted(tmp_path, capsys):
    def lost(run):
        return np.where((run.seed == 1) & (STEPS > 40), np.nan, accuracy(run))

    print_summary(summarize(made(tmp_path / "s", CELLS[:4], lost)))
    assert re.search(r"1 of 4 +1 of 4", printed(capsys))


@pytest.mark.slow
def test_the_next_steps_that_are_printed_draw_and_compare(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = made(tmp_path / "my sweep; rm", CELLS)
    report(folder, status(folder), summarize(folder))
    steps = [line.strip() for line in capsys.readouterr().out.splitlines() if line.startswith("  testbed")]
    assert steps == next_steps(folder)
    for step in steps:
        program, *words = shlex.split(step)
        assert program == "testbed"
        assert call(capsys, *words)[0] == 0, step
    assert list((tmp_path / "out").iterdir())


def test_nothing_is_offered_to_be_drawn_after_total_failure(capsys):
    report(Path("results/x"), Status(4, 0, 4, 0), [])
    out = capsys.readouterr().out
    assert "testbed plot" not in out
    assert "Why cells failed: testbed status results/x" in out


def test_a_table_wider_than_the_terminal_becomes_paragraphs(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    show.table([{f"column{i}": f"word{i}" for i in range(8)}])
    lines = printed(capsys).splitlines()
    assert all(len(line) <= 40 for line in lines)
    assert "".join(lines).count("word") == 8
