"""`testbed pipeline … --then run …`, and when a run reaches a level by its pipeline's clock."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from support.command_line import call, refused

from analysis.tables.wall_clock import SHARE, pace, reached, wall_clock
from testbed.cli import main
from testbed.config.run import Run
from testbed.pipeline import trace
from testbed.pipeline.design import from_words
from testbed.results.store import read
from testbed.training.loop import train

DESIGN = ("slots=24", "batch=16", "group=4", "train_time=5", "length_mean=200")
TAIL = ("--then", "run", "bandit-grid", "recipe=grpo,reinforce", "lag=0", "seed=0,1", "prompts=4", "steps=12")
HERE = ("--workers", "0", "--quiet")


def run(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main(["pipeline", *map(str, words)])
    return stop.value.code, capsys.readouterr()


def logged(values, column="exact/value", recipe="grpo", seed=0, **fields):
    """Result rows of one cell, every second step 20 s later."""
    count = len(values)
    frame = pd.DataFrame({"step": 2 * np.arange(count), "pipeline/time": 30.0 + 20 * np.arange(count)})
    fields = {"task": "tree", "recipe_args": "", "learning_rate": 0.1, **fields}
    return frame.assign(
        **fields, **{column: values}, recipe=recipe, seed=seed, cell=f"{recipe}/{seed}/{fields}"
    ).assign(**{"staleness/age_mean_token": 2.0})


# When a level is reached.


def test_a_level_is_reached_at_the_first_row_at_it_or_above():
    rows = logged([0.1, 0.5, 0.4, 0.9])
    assert reached(rows, "exact/value", 0.5) == (2, 50)
    assert reached(rows.iloc[::-1], "exact/value", 0.45) == (2, 50)
    assert reached(rows, "exact/value", 0.9) == (6, 90)
    assert reached(rows, "exact/value", 0.95) == (math.inf, math.inf)


def test_a_sampled_accuracy_must_hold_on_average_over_three_rows():
    rows = logged([0.0, 0.9, 0.0, 0.6, 0.6, 0.6], "accuracy")
    assert reached(rows, "accuracy", 0.6) == (10, 130)
    assert reached(rows, "accuracy", 0.3) == (4, 70)


def test_seconds_per_update_count_the_update_of_the_last_row():
    assert pace(logged([0.0, 0.0])) == 50 / 3


def test_a_setting_is_summed_up_over_its_seeds():
    frame = pd.concat(
        [logged([0.2, 0.6, 0.9], recipe="grpo", seed=0), logged([0.2, 0.9, 1.0], recipe="grpo", seed=1),
         logged([0.2, 0.3, 0.4], recipe="reinforce", seed=0),
         logged([0.2, 0.3, 0.9], recipe="reinforce", seed=1)]
    )  # fmt: skip
    level, (grpo, reinforce) = wall_clock(frame)
    assert level == pytest.approx(SHARE * 0.95)
    assert grpo == {
        "recipe": "grpo", "final": pytest.approx(0.95), "age": 2.0, "seconds per update": 70 / 5,
        "seconds to level": 60.0, "reached": 2, "seeds": 2,
    }  # fmt: skip
    assert (reinforce["seconds to level"], reinforce["reached"]) == (math.inf, 1)
    assert wall_clock(frame, 0.3)[1][1]["seconds to level"] == 50


def test_what_varies_beside_the_recipe_is_a_setting_of_its_own():
    frame = pd.concat([logged([0.2, value], learning_rate=value) for value in (0.3, 0.6)])
    assert [row["learning_rate"] for row in wall_clock(frame)[1]] == [0.3, 0.6]


def test_a_pipeline_drives_a_sweep_and_says_what_its_time_bought(capsys, tmp_path):
    folder = tmp_path / "out"
    code, printed = run(capsys, *DESIGN, "--seed", "3", *TAIL, "--out", folder, *HERE, "--json")
    found = json.loads(printed.out)
    assert code == 0
    assert (found["folder"], found["done"], found["failed"]) == (str(folder), 4, 0)
    assert [row["recipe"] for row in found["recipes"]] == ["grpo", "reinforce"]
    frame = read(folder).to_pandas()
    assert set(frame["staleness"]) == {"pipeline"}
    recorded = trace.record(from_words(list(DESIGN)), 12, seed=3)
    kept = trace.read(folder / "lags.parquet")
    assert all((kept.column_B[name] == recorded.column_B[name]).all() for name in trace.COLUMNS)
    lags = trace.lags(recorded, "t")
    assert (frame["pipeline/time"] == lags.time_T[frame["step"]]).all()
    assert found["recipes"][0]["seconds per update"] == pytest.approx(lags.time_T[11] / 12)


@pytest.mark.slow
def test_the_kept_trace_trains_the_same_numbers_again(capsys, tmp_path):
    run(capsys, *DESIGN, *TAIL, "--out", tmp_path / "out", *HERE)
    arguments = (("file", str(tmp_path / "out" / "lags.parquet")),)
    frame = read(tmp_path / "out").to_pandas()
    fields = {"prompts": 4, "group": 8, "steps": 12, "learning_rate": 0.3, "recipe": "grpo", "seed": 1}
    again = train(Run(**fields, staleness="trace", staleness_args=arguments))
    rows = frame[(frame["recipe"] == "grpo") & (frame["seed"] == 1)].sort_values("step")
    for name in ("exact/value", "staleness/age_mean_token", "pipeline/time"):
        assert rows[name].tolist() == again[name].tolist()


@pytest.mark.slow
def test_the_table_says_how_many_seeds_reached_the_level(capsys, tmp_path):
    words = (*DESIGN, "--reach", "2", *TAIL, "--out", tmp_path / "out", *HERE)
    code, printed = run(capsys, *words)
    assert code == 0
    assert "Return 2 is asked for" in printed.out
    assert printed.out.count("never") == 2
    assert printed.out.count("0 of 2") == 2
    assert "lags.parquet" in printed.out


@pytest.mark.slow
def test_a_second_run_finds_everything_done(capsys, tmp_path):
    words = (*DESIGN, *TAIL, "--out", tmp_path / "out", *HERE, "--json")
    (_, first), (_, second) = run(capsys, *words), run(capsys, *words)
    assert first.out == second.out


@pytest.mark.slow
def test_fields_may_stand_in_a_file_and_words_go_over_it(capsys, tmp_path):
    config = tmp_path / "pipeline.toml"
    config.write_text(
        "slots = 24\nbatch = 999\ngroup = 4\ntrain_time = 5\nlength_mean = 200\nin_flight = false\n"
    )
    tail = (*TAIL, "--dry-run", "--json", "--out", "x")
    code, printed = run(capsys, "--config", config, "batch=16", *tail)
    assert code == 0
    assert printed.out == run(capsys, *DESIGN, *tail)[1].out
    assert printed.out != run(capsys, *DESIGN, "train_time=6", *tail)[1].out


def test_a_stop_is_exit_code_130_and_says_how_far_it_came(capsys, tmp_path, monkeypatch):
    def stops(*_, **__):
        raise KeyboardInterrupt("Stopped with 1 of 4 cells done.")

    monkeypatch.setattr("testbed.execution.runner.run_sweep", stops)
    code, printed = run(capsys, *DESIGN, *TAIL, "--out", tmp_path / "out", *HERE)
    assert code == 130
    assert "Stopped with 1 of 4 cells done." in printed.err


@pytest.mark.slow
def test_a_failed_cell_is_exit_code_1(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("testbed.training.loop.train_pack", lambda runs, report=None: 1 / 0)
    code, printed = run(capsys, *DESIGN, *TAIL, "--out", tmp_path / "out", *HERE)
    assert (code, "4 failed" in printed.out) == (1, True)


@pytest.mark.parametrize(
    ("words", "why"),
    [(("--then", "walk"), "--then walk: expected `--then run SWEEP"),
     (("--then",), "--then' requires an argument"), (("--then", "run"), "No sweep was given."),
     (("--then", "run", "bandit-gri"), "Did you mean 'bandit-grid'"),
     (("--then", "run", "bandit-grid", "prompts=4"), "but the pipeline determines every age; leave lag at 0"),
     (("--then", "run", "bandit-grid", "lag=0"), "trains 4 groups per update, prompts is 32"),
     (("in_flight=true", *TAIL), "the weights change inside this sample"),
     (("--figure", "x.png", *TAIL), "does not go with --then"), (("plan", *TAIL), "Leave out `plan`"),
     (("--config", "nowhere.toml"), "nowhere.toml cannot be read"),
     (("--trace", "x.txt", *TAIL), ".csv or .parquet"),
     (("--batches", "9", *TAIL), "--batches set nothing"), (("--replicas", "9", *TAIL), "--replicas and")],
)  # fmt: skip
def test_bad_words_are_one_error_and_exit_code_2(capsys, tmp_path, monkeypatch, words, why):
    monkeypatch.chdir(tmp_path)
    given = words if words[0] == "plan" else (*DESIGN, *words)
    code, printed = run(capsys, *given)
    assert code == 2
    assert printed.err.count("error: ") == 1
    assert why in printed.err
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_not_toml_is_refused(capsys, tmp_path):
    (tmp_path / "bad.toml").write_text("slots = \n")
    code, printed = run(capsys, "--config", tmp_path / "bad.toml")
    assert code == 2
    assert "bad.toml is not TOML" in printed.err


def test_a_recorded_trace_is_an_axis_of_any_sweep_and_its_digest_is_in_the_cells(capsys, tmp_path):
    path = tmp_path / "lags.csv"
    trace.write(trace.record(from_words(list(DESIGN)), 12, seed=0), path)
    words = ["bandit-grid", "recipe=grpo", "lag=0", "seed=0", "prompts=4", "steps=12"]
    words += ["staleness=trace", f"staleness_args.file={path}", "--out", str(tmp_path / "out"), *HERE]
    assert call(capsys, "run", *words)[0] == 0
    given = read(tmp_path / "out").to_pandas()["staleness_args"]
    assert given.str.match(r"file=.*lags\.csv#[0-9a-f]{12}$").all()
    path.write_text(path.read_text().replace("group", "groop"))
    assert "lacks group" in refused(capsys, "run", *words)
