"""One row per cell of a sweep: what varied, finals worked by hand, and the committed tables.

Tables made twice: runs share no key, arms share theirs, and a claim needs both runs.
"""

import math
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
from support.refusals import refuses

from analysis.judging.replication import averaged, columns, combinations, of_keys
from analysis.tables.cell_table import DEFAULT, REDUCTIONS, arms_of, cell_table
from analysis.tables.outcomes import cells as outcomes
from testbed.config.run import Run, cell_id, grid

RISE = (0.1, 0.5, 0.9, 0.6, 0.6, 0.6)
FALL = (0.1, 0.5, 0.9, 0.9, 0.0, 0.0, 0.0)
KEYS = ("recipe", "lag", "seed")


def rows_of(cell, accuracy, **metrics):
    """Return the rows that `testbed.training.recorder` writes of one cell, a row per ten steps."""
    names = {item.name: getattr(cell, item.name) for item in fields(Run)}
    text = {name: ",".join(f"{key}={value}" for key, value in pairs)
            for name, pairs in names.items() if name.endswith("_args")}  # fmt: skip
    steps = 10 * np.arange(len(accuracy))
    logged = {"diverged": 0.0, "accuracy": accuracy, **metrics}
    return pd.DataFrame({"cell": cell_id(cell), "step": steps, **names, **text, **logged})


def frame_of(cells, accuracy=RISE, **metrics):
    return pd.concat([rows_of(cell, accuracy, **metrics) for cell in cells], ignore_index=True)


def table_of(cells, metrics=("accuracy",), keys=KEYS, **logged):
    return cell_table("t", frame_of(cells, **logged), keys, metrics).frame


def test_a_row_per_cell_holds_keys_finals_and_whether_it_diverged():
    found = table_of(grid(Run(), recipe=["rec", "grpo"], lag=[4, 0]))
    assert list(found.columns) == ["recipe", "lag", "seed", "accuracy", "diverged"]
    assert found.to_numpy().tolist() == [[name, lag, 0, 0.6, 0] for name in ("grpo", "rec") for lag in (0, 4)]


def test_every_reduction_by_hand():
    metrics = ("x", *(f"{word} x" for word in REDUCTIONS))
    (row,) = table_of([Run()], metrics, x=[5.0, 1.0, 2.0, 3.0, 4.0, 8.0]).to_dict("records")
    expected = {"x": 5, "final x": 5, "first x": 5, "min x": 1, "max x": 8, "mean x": 23 / 6}
    expected |= {"known x": 23 / 6, "last x": 8, "rise x": 5 - 2}
    assert {metric: row[metric] for metric in metrics} == pytest.approx(expected, abs=1e-4)


def test_fewer_rows_than_three_have_a_final_value_too():
    assert table_of([Run()], accuracy=(0.2, 0.4))["accuracy"].tolist() == [0.3]


def test_outcomes_are_those_of_the_collapse_analysis():
    runs = grid(Run(), seed=[0, 1])
    frame = pd.concat([rows_of(runs[0], RISE), rows_of(runs[1], FALL)])
    words = ("accuracy", "best", "start", "collapsed", "peak_step", "collapse_step")
    found = cell_table("t", frame, ("seed",), words).frame
    wanted = outcomes(frame).rename(columns={"final": "accuracy"})
    pd.testing.assert_frame_equal(found[list(words)], wanted[list(words)], check_dtype=False, rtol=1e-4)
    assert found["collapsed"].tolist() == [0, 1]


def test_a_diverged_cell_counts_as_wrong_answers_but_other_gaps_stay_gaps():
    gap = [1.0, 1.0, 1.0, 1.0, 1.0, math.nan]
    frame = frame_of([Run()], accuracy=[0.3, 0.3, 0.3, 0.6, 0.6, math.nan], x=gap)
    frame.loc[3, "diverged"] = 1.0
    (row,) = cell_table("t", frame, ("seed",), ("accuracy", "x", "first x")).frame.to_dict("records")
    assert row["accuracy"] == pytest.approx(0.4)
    assert math.isnan(row["x"])
    assert (row["first x"], row["diverged"]) == (1.0, 1)


def test_rows_without_a_number_are_left_out_where_the_word_says_so():
    gaps = [1.0, math.nan, math.nan, 4.0, math.nan, math.nan]
    metrics = ("known x", "last x", "x", "last y")
    (row,) = table_of([Run()], metrics, x=gaps, y=[math.nan] * 6).to_dict("records")
    assert (row["known x"], row["last x"]) == (2.5, 4.0)
    assert math.isnan(row["x"])
    assert math.isnan(row["last y"])


def test_rollouts_to_an_accuracy_by_hand():
    words = ("steps_to", "rollouts_to", "steps_to 0.5", "rollouts_to 0.5", "rollouts_to 1", "area", "last")
    rollouts = [64.0, 128, 192, 256, 320, 384]
    (row,) = table_of([Run()], words, rollouts=rollouts).to_dict("records")
    # Windows of RISE: .5, .667, .7, .6 at steps 20, 30, 40, 50.
    assert (row["steps_to 0.5"], row["rollouts_to 0.5"]) == (20, 192)
    assert all(math.isnan(row[word]) for word in ("steps_to", "rollouts_to", "rollouts_to 1"))
    assert row["area"] == pytest.approx((0.3 + 0.7 + 0.75 + 0.6 + 0.6) / 5)
    assert row["last"] == 0.6


@pytest.mark.parametrize(
    "word",
    ["rollouts_to", "entropy_collapsed", "length_collapsed", "steps_to soon", "steps_to 80"],
)  # fmt: skip
def test_an_outcome_that_cannot_be_read_is_refused(word):
    refuses(".", table_of, [Run()], (word,))


def test_arguments_are_keys_as_a_whole_or_one_by_one():
    runs = [Run(recipe="rec", recipe_args=(("eps", eps), ("keep", "ring"))) for eps in (16, 3, 0.5)]
    runs += [replace(Run(), recipe="grpo")]
    keys = ("recipe", "recipe_args", "recipe_args.eps", "recipe_args.keep")
    found = table_of(runs, keys=keys)
    assert found["recipe_args"].tolist() == [
        "default", "eps=0.5,keep=ring", "eps=16,keep=ring", "eps=3,keep=ring",
    ]  # fmt: skip
    assert found["recipe_args.eps"].tolist()[1:] == [0.5, 16, 3]
    assert found[["recipe_args.eps", "recipe_args.keep"]].isna().all(axis=1).tolist() == [True] + 3 * [False]


def test_numbers_among_arguments_are_sorted_as_numbers():
    runs = [replace(Run(), recipe_args=(("tau", tau),)) for tau in (16, 128, 2)]
    assert table_of(runs, keys=("recipe_args.tau",))["recipe_args.tau"].tolist() == [2, 16, 128]


def test_neither_the_order_of_rows_nor_a_second_reading_changes_a_byte():
    frame = frame_of(grid(Run(), recipe=["rec", "grpo"], lag=[0, 4], seed=[0, 1]))
    frame["x"] = np.linspace(0, 1, len(frame))
    first, shuffled = (
        cell_table("t", each, KEYS, ("accuracy", "x"))
        for each in (frame, pd.concat([frame, frame]).sample(frac=1, random_state=0))
    )
    assert first.csv == shuffled.csv
    assert first.about == shuffled.about


def test_the_table_says_what_all_cells_share_and_what_varied_beside_the_keys():
    runs = [replace(Run(), recipe=name, learning_rate=rate) for name, rate in (("rec", 0.1), ("grpo", 0.3))]
    about = cell_table("t", frame_of(runs), ("recipe",), ("accuracy",)).about
    assert (about["cells"], about["task"], about["steps"]) == (2, "bandit", 200)
    assert about["also_varied"] == ["learning_rate"]
    assert not {"recipe", "learning_rate"} & set(about)


@pytest.mark.parametrize(
    ("runs", "keys", "metrics"),
    [(grid(Run(), lag=[0, 4]), ("recipe", "seed"), ("accuracy",)),
     (grid(Run(), learning_rate=[0.1, 0.1000001]), ("learning_rate",), ("accuracy",)),
     ([Run()], ("seed", "lagg"), ("accuracy",)), ([Run()], ("seed",), ("acuracy",)),
     ([Run()], ("seed",), ("median accuracy",)), ([Run()], ("seed", "recipe_args.eps"), ("accuracy",))],
)  # fmt: skip
def test_what_cannot_be_told_apart_or_was_not_logged_is_refused(runs, keys, metrics):
    refuses(".", cell_table, "t", frame_of(runs), keys, metrics)


def test_arguments_that_cannot_be_taken_apart_are_refused():
    frame = frame_of([replace(Run(), task_args=(("prompt", "a,b"),))])
    told = "'prompt=a,b' cannot be taken apart"
    refuses(told, cell_table, "t", frame, ("task_args.prompt",), ("accuracy",))


def test_an_outcome_needs_accuracy_and_a_table_needs_the_mark_of_divergence():
    frame = frame_of([Run()], x=1.0)
    for lost, metric in (("accuracy", "collapsed"), ("diverged", "x")):
        told = f"lacks the column.s. {lost}"
        refuses(told, cell_table, "t", frame.drop(columns=lost), ("seed",), (metric,))


def _make(key_R):
    frame, key_N = combinations(key_R, arm=["a", "b"], setting=[1, 2])
    assert list(frame.index) == list(range(len(frame)))
    return frame.assign(key=key_N.astype(str))


def test_arms_of_a_seed_share_their_key_and_no_run_or_experiment_shares_one():
    table = of_keys("x", _make, 32)().frame
    assert len(table) == 2 * 2 * 2 * 32
    assert (table.groupby(["run", "seed"])["key"].nunique() == 1).all()
    assert table["key"].nunique() == 2 * 32
    assert not set(table["key"]) & set(of_keys("y", _make, 32)().frame["key"])


@pytest.mark.parametrize(("continued", "kept"), [(False, {}), (True, {3000: 0, 3003: 1})])
def test_a_unit_is_the_mean_of_worlds_that_no_other_meets(continued, kept):
    met = []

    def rows(seeds):
        met.extend(seeds)
        yield from (columns(seeds, arm=arm, y=np.array(seeds, float)) for arm in "ab")

    table = pd.concat(averaged(rows, 3, ("y",), continued=continued)((0, 1)))
    worlds = [kept.get(world, world) for world in range(3000, 3006)]
    assert sorted(met) == sorted(worlds)
    for arm in "ab":
        mine = table[table["arm"] == arm].set_index("seed")["y"]
        assert mine.to_dict() == {0: np.mean(worlds[:3]), 1: np.mean(worlds[3:])}


def test_arms_are_what_a_table_says_of_their_runs_arguments_included():
    runs = (Run(recipe_args=(("eps", 0.1),)), Run(lag=4))
    assert arms_of("ab", runs, ("recipe_args", "lag", "seed")) == {
        "a": {"recipe_args": "eps=0.1", "lag": 0},
        "b": {"recipe_args": DEFAULT, "lag": 4},
    }
