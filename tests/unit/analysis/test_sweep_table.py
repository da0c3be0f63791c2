"""Any results folder as a table: settings, metrics, one row per cell."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from support.made_sweep import CELLS, STEPS, TOY, accuracy, made
from support.refusals import refuses

from analysis.sweeps import sweep_table
from analysis.sweeps.sweep_table import (
    labeled,
    load,
    metric_word,
    numeric,
    only,
    per_cell,
    setting,
    settings,
    telling,
)
from testbed.config.run import grid
from testbed.user_files import short_names


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return load(made(tmp_path_factory.mktemp("sweep") / "made"))


def test_a_folder_is_read_with_a_row_per_cell_and_step(rows):
    assert len(rows) == len(CELLS) * len(STEPS)
    assert settings(rows) == ["recipe", "lag"]
    assert numeric(rows, settings(rows)) == ["lag"]


def test_a_cell_that_is_in_two_folders_counts_once(tmp_path):
    made(tmp_path / "a", CELLS[:4])
    made(tmp_path / "b", CELLS[2:6])
    assert len(load(tmp_path / "a", tmp_path / "b")) == 6 * len(STEPS)
    assert len(load(tmp_path)) == 6 * len(STEPS)


def test_an_objective_of_a_file_is_called_by_its_function_beside_one_of_ours(tmp_path):
    rows = load(made(tmp_path / "s", grid(TOY, recipe=["grpo", "somewhere/mine.py:gain"])))
    assert set(rows["recipe"]) == {"grpo", "gain"}
    assert set(rows["recipe_file"]) == {"grpo", "somewhere/mine.py:gain"}


def test_single_arguments_are_settings_of_their_own(tmp_path):
    cells = grid(TOY, recipe=["grpo"], recipe_args=[(("eps", 0.1),), (("eps", 0.2), ("level", "token"))])
    rows = load(made(tmp_path / "s", [*cells, TOY]))
    assert settings(rows) == ["recipe_args.eps", "recipe_args.level"]
    first = rows.drop_duplicates("cell").set_index("cell")
    assert set(first["recipe_args.eps"].dropna()) == {0.1, 0.2}
    assert first["recipe_args.level"].isna().sum() == 2
    assert numeric(rows, settings(rows)) == []
    texts = pd.Series(["prompt=a, b = c,<1/2>,eps=1", "prompt={x},y", ""])
    found = sweep_table._arguments("task_args", texts)
    assert list(found["task_args.prompt"][:2]) == ["a, b = c,<1/2>", "{x},y"]
    assert found["task_args.eps"].notna().tolist() == [True, False, False]


def test_what_all_cells_share_is_told_and_what_varies_or_is_left_out_is_not(rows):
    found = sweep_table.about(rows)
    assert {"recipe", "lag", "seed"}.isdisjoint(found)
    for name, word in found.items():
        assert {str(getattr(c, name)) for c in CELLS} == {word} or float(word) == getattr(CELLS[0], name)
    assert {"task", "policy", "prompts", "group"} <= set(found)
    gone = rows.assign(accuracy=rows["accuracy"].where((rows["step"] != STEPS[1]) | (rows["lag"] != 64)))
    assert sweep_table.gaps(gone) == {"accuracy": gone.loc[gone["lag"] == 64, "cell"].nunique()}
    assert sweep_table.gaps(rows) == {}
    assert sweep_table.metrics(gone) == sweep_table.metrics(rows)
    assert "accuracy" not in sweep_table.metrics(gone.assign(accuracy=np.nan))
    assert [sweep_table.as_word(value) for value in (0.30, 16, 1e-4, float("nan"), None, "", "grpo")] == [
        "0.3", "16", "0.0001", "default", "default", "default", "grpo",
    ]  # fmt: skip


def test_a_number_means_the_value_it_equals_and_no_other():
    for known in (["0", "0.3"], ["0.3", "0"]):
        assert sweep_table.named("value", "0.3", known) == "0.3"
        assert sweep_table.named("value", "3e-1", known) == "0.3"
    assert sweep_table.named("value", "1e8", ["100000000", "1"]) == "100000000"
    for absent in ("0.4", "inf", "nan", "many"):
        refuses("", sweep_table.named, "value", absent, ["0", "0.3"])


def test_a_setting_that_follows_another_is_told_once(tmp_path):
    cells = [replace(TOY, recipe=r, learning_rate=rate) for r, rate in (("grpo", 0.1), ("m2po", 0.2))]
    rows = load(made(tmp_path / "s", cells))
    assert settings(rows) == ["recipe", "learning_rate"]
    assert telling(rows, settings(rows)) == ["recipe"]


def test_a_cell_has_its_final_value_and_its_outcome(rows):
    found = per_cell(rows, "final_accuracy").set_index(["recipe", "lag", "seed"])["final_accuracy"]
    assert found["grpo", 64, 3] == pytest.approx(accuracy(CELLS[3])[-3:].mean())
    assert found["reinforce", 64, 3] == 0
    lost = per_cell(rows, "collapsed")
    assert set(lost.loc[lost["collapsed"] > 0, "recipe"]) == {"reinforce"}
    assert lost["collapsed"].sum() == 4


def test_a_diverged_run_has_accuracy_zero_and_is_marked(tmp_path):
    def lost(run):
        return np.where(STEPS >= 50, np.nan, accuracy(run))

    found = per_cell(load(made(tmp_path / "s", CELLS[:2], lost)), "accuracy")
    assert found["accuracy"].tolist() == [0, 0]
    assert found["diverged"].all()


@pytest.mark.parametrize(
    ("given", "meant"),
    [("accuracy", "accuracy"), ("final accuracy", "final accuracy"), ("min_reward/mean", "min reward/mean"),
     ("best_accuracy", "best"), ("final", "accuracy")],
)  # fmt: skip
def test_a_metric_is_called_as_people_call_it(rows, given, meant):
    assert metric_word(rows, given) == meant


def test_unknown_names_get_the_nearest_known_one(rows):
    refuses("Unknown metric 'acuracy'. Did you mean 'accuracy'", per_cell, rows, "acuracy")
    refuses(r"Unknown setting 'lagg'. Did you mean 'lag'\?.*recipe, seed", setting, rows, "lagg")
    refuses("Unknown value of lag '7'", only, rows, ["lag=0,7"])
    refuses("'best' is one number per cell", sweep_table.logged_metric, rows, "best")


def test_cells_are_chosen_by_the_words_of_their_settings(rows):
    found = only(rows, ["lag=0,64", "recipe=grpo"])
    assert found["cell"].nunique() == 8
    assert set(found["lag"]) == {0, 64}


def test_labels_name_the_settings_of_numbers_and_follow_their_order(rows):
    label, order = labeled(rows.iloc[::-1], ["recipe", "lag"])  # whatever the order of the rows
    assert order == [f"{recipe}, lag {lag}" for recipe in ("grpo", "reinforce") for lag in (0, 8, 64)]
    assert (label[rows["lag"] == 8].str.endswith("lag 8")).all()


def test_own_objectives_are_called_by_their_function():
    long = ["a/mine.py:clip#0123456789ab", "b/mine.py:clip#ba9876543210", "c/yours.py:cap#0123456789ab"]
    found = short_names([*long, "grpo"])
    assert [found[name] for name in long] == ["clip#0123456789ab", "clip#ba9876543210", "cap"]
    assert found["grpo"] == "grpo"
    assert short_names([long[0], "clip"])[long[0]] == "mine.py:clip"


def test_gaps_are_counted_in_cells_and_a_metric_of_some_steps_has_none():
    rows = pd.DataFrame({"cell": list("aabb"), "step": [0, 1, 0, 1], "x": 1.0})
    rows["loss"], rows["val/pass@8"] = [1, np.nan, 2, 3], [1, np.nan, 1, np.nan]
    assert sweep_table.gaps(rows) == {"loss": 1}


def test_outcomes_are_offered_where_their_columns_are(rows):
    assert metric_word(rows, "steps_to 0.5") == "steps_to 0.5"
    assert metric_word(rows, "area") == "area"
    assert set(per_cell(rows, "steps_to 0.5")["steps_to 0.5"]) == {40}
    refuses("Unknown metric 'length_collapsed'", metric_word, rows, "length_collapsed")
