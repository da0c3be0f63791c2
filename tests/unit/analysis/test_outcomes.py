"""Outcomes on hand-made curves: what counts as entropy collapse, length collapse and divergence, and when."""

import math
import re

import numpy as np
import pandas as pd
import pytest
from support.import_graph import ROOT

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
