"""Outcomes on hand-made curves: what counts as entropy collapse, length collapse and divergence, and when.

What claims say of a table: arms are paired by seed, groups are judged by their worst.
"""

import math
import re

import numpy as np
import pandas as pd
import pytest
from support.import_graph import ROOT
from support.refusals import refuses

from analysis.judging.comparisons import arm, arms, happens_more_often, paired, reading
from analysis.tables import outcomes as collapse
from analysis.tables.cell_table import OUTCOMES

FLAT = (0.2,) * 8
"""Accuracy of a run that learned nothing; rows are ten steps apart."""


def outcome_of(accuracy=FLAT, **columns):
    frame = pd.DataFrame({"step": 10 * np.arange(len(accuracy)), "accuracy": accuracy})
    names = {"entropy": "val/entropy", "length": "val/response_length"}
    return collapse.outcome(frame.assign(**{names.get(key, key): value for key, value in columns.items()}))


def test_entropy_that_is_gone_for_good_before_the_task_is_learned_is_a_collapse():
    found = outcome_of(entropy=[1.0, 1.0, 0.6, 0.0, 0.0, 0.0, 0.05, 0.0])
    # Windows from step 20: .867, .533, .2, 0, .017, .017.
    assert (found["entropy_collapsed"], found["entropy_collapse_step"]) == (1.0, 50)


def test_entropy_that_comes_back_or_is_not_needed_is_no_collapse():
    gone = [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    back = outcome_of(entropy=[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0.5])
    learned = outcome_of(accuracy=(0.2, 0.5, 0.9, 1, 1, 1, 1, 1), entropy=gone)
    for found in (back, learned):
        assert found["entropy_collapsed"] == 0.0
        assert math.isnan(found["entropy_collapse_step"])
    assert outcome_of(entropy=gone)["entropy_collapsed"] == 1.0


def test_length_below_half_for_good_is_a_collapse_whatever_the_accuracy():
    short = [12.0, 12, 12, 3, 3, 3, 3, 3]
    for accuracy in (FLAT, (0.2, 0.5, 0.9, 1, 1, 1, 1, 1)):
        found = outcome_of(accuracy=accuracy, length=short)
        # Windows from step 20: 12, 9, 6, 3, …; 6 is not below half of 12.
        assert (found["length_collapsed"], found["length_collapse_step"]) == (1.0, 50)
    assert outcome_of(length=[12.0] * 8)["length_collapsed"] == 0.0


def test_a_collapse_is_dated_by_the_first_window_below_the_share_that_is_kept():
    frame = pd.DataFrame({"step": [0, 10, 20, 30, 40], "accuracy": [0.25, 1.0, 0.5, 0.5, 0.25]})
    found = collapse.outcome(frame.sample(frac=1, random_state=1), window=1, rise=0.75, kept=0.5)
    told = {"start": 0.25, "best": 1.0, "final": 0.25, "collapsed": 1.0, "peak_step": 10, "collapse_step": 40}
    assert {name: found[name] for name in told} == told
    for limits in ({"rise": 0.76}, {"kept": 0.25}):  # too small a rise; no less than what is kept
        assert collapse.outcome(frame, window=1, **{"rise": 0.75, "kept": 0.5, **limits})["collapsed"] == 0


def test_divergence_is_dated_by_its_first_row():
    found = outcome_of(diverged=[0.0, 0, 0, 1, 1, 1, 1, 1])
    assert (found["diverged"], found["diverged_step"]) == (1.0, 30)
    assert math.isnan(outcome_of(diverged=[0.0] * 8)["diverged_step"])


def test_accuracy_is_reached_in_the_last_row_of_a_window():
    found = outcome_of(accuracy=(0.2, 0.8, 0.8, 0.8, 0.1, 0.1, 0.1, 0.1), rollouts=64.0 * np.arange(1, 9))
    assert (found["steps_to"], found["rollouts_to"]) == (30, 256)


def test_area_is_a_mean_over_steps_and_a_lost_run_scores_zero():
    frame = pd.DataFrame({"step": [0, 10, 40, 50], "accuracy": [0.0, 1.0, 1.0, math.nan]})
    assert collapse.outcome(frame)["area"] == pytest.approx((5 + 30 + 5) / 50)
    assert collapse.outcome(frame.iloc[:2])["area"] == 0.5
    assert collapse.outcome(frame.iloc[1:2])["area"] == 1.0


def test_what_was_not_logged_is_not_called_absent():
    found = outcome_of()
    for name in ("entropy_collapsed", "length_collapsed", "rollouts_to"):
        assert math.isnan(found[name])


def test_the_page_names_every_outcome_and_its_constants():
    page = (ROOT / "docs" / "outcomes.md").read_text()
    words = {word.split()[0] for word in re.findall(r"`([^`]+)`", page)}
    assert set(OUTCOMES) - {"ess_min"} <= words
    constants = (collapse.RISE, collapse.KEPT, collapse.ENTROPY_KEPT, collapse.SOLVED, collapse.LENGTH_KEPT)
    for value in (*constants, collapse.THRESHOLD, f"{collapse.WINDOW} consecutive"):
        assert f" {value}" in page


def test_the_fields_of_a_cell_are_those_that_vary_and_one_that_some_rows_lack_varies():
    rows = {"seed": [0, 1, 2], "lag": 4, "group": 8, "optimizer": ["adam", None, "adam"], "value": [1, 2, 3]}
    assert collapse.cell_fields(pd.DataFrame(rows)) == ["lag", "seed", "optimizer"]


NOISE = np.array([-0.02, 0.01, 0.0, 0.03])


def table(lost=0.1, seeds=4):
    """Recipe b ends lower than a by `lost` at lag 4, by twice that at lag 8; seeds differ by 10."""
    rows = [
        {"recipe": recipe, "lag": lag, "seed": seed, "value": 10.0 * seed - (recipe == "b") * lost * lag / 4}
        for recipe in "ab"
        for lag in (0, 4, 8)
        for seed in range(seeds)
    ]
    return pd.DataFrame(rows).sample(frac=1, random_state=0)


def test_pairs_are_of_one_seed_whatever_the_order_of_rows():
    lost_N = paired(table(), "value", {"recipe": "a", "lag": 4}, {"recipe": "b", "lag": 4})
    assert lost_N == pytest.approx([0.1] * 4)
    assert list(arm(table(), "value", {"recipe": "a", "lag": 0}).index) == [0, 1, 2, 3]


def test_a_seed_that_one_arm_lacks_is_no_pair():
    frame = table()
    frame = frame[~((frame["recipe"] == "b") & (frame["seed"] == 2))]
    assert paired(frame, "value", {"recipe": "a", "lag": 4}, {"recipe": "b", "lag": 4}).size == 3
    one = {"recipe": "a", "lag": 4, "seed": 3}
    with reading() as read:
        paired(frame, "value", one, {"recipe": "c", "lag": 4})
    assert [(each.where, each.values.tolist()) for each in read] == [(one, [30.0])]
    assert len(arms(frame, "value", {name: {"recipe": name, "lag": 0} for name in "ab"})) == 3


def test_an_arm_without_rows_has_no_pairs_and_one_that_is_two_is_refused():
    assert paired(table(), "value", {"recipe": "c", "lag": 4}, {"recipe": "b", "lag": 4}).size == 0
    refuses(r"Two rows with \{'recipe': 'a'\} share seed 0. Name", arm, table(), "value", {"recipe": "a"})
    refuses("Unknown column of the table 'lags'. Did you mean 'lag'", arm, table(), "value", {"lags": 4})


def test_events_are_counted_where_both_arms_have_a_seed():
    first = pd.Series([1.0, 1.0, 0.0, 1.0], index=[3, 1, 2, 9])
    second = pd.Series([0.0, 1.0, 0.0], index=[3, 1, 2])
    found = happens_more_often(first, second, "x")
    assert (found.effect, found.n) == (1.0, 3)


def test_a_threshold_is_reached_where_the_mean_of_the_window_meets_it():
    rows = pd.DataFrame({"step": [0, 10, 20, 30], "accuracy": [0.0, 0.5, 0.5, 1.0]})
    assert [collapse.reached(rows, level, window=1) for level in (0.5, 0.75)] == [10, 30]
    assert [collapse.reached(rows, level, window=2) for level in (0.5, 0.75)] == [20, 30]
    assert np.isnan(collapse.reached(rows, 1.1, window=1))


def test_a_column_that_an_arm_needs_and_lacks_is_named():
    table = pd.DataFrame({"x": [1.0], "recipe": ["a"], "seed": [0]})
    for given in (("y", {"recipe": "a"}), ("x", {"lag": 1}), ("x", {"recipe": "a"}, ["seed", "day"])):
        refuses("column of the table", arm, table, *given)
