"""The learning half of the pipeline frontier: what its table holds, and what its claims count."""

import math

import numpy as np
import pytest

from analysis.experiments.pipelines import pipeline_learning
from analysis.experiments.pipelines.pipeline_learning import (
    BATCH,
    GROUP,
    SETTINGS,
    best,
    cells,
    split,
    trained,
)
from testbed.execution.preflight import check_arguments
from testbed.pipeline.design import check
from testbed.pipeline.simulate import simulate_one


def test_a_setting_is_a_pipeline_that_the_learner_can_follow():
    for setting, slots, fields in (SETTINGS[0], SETTINGS[3], SETTINGS[-1]):
        design = split(slots, fields, 0 if setting == "synchronous" else 4)
        check(design)
        check_arguments(cells(design, seed=0, steps=3))
        assert (design.batch, design.group) == (BATCH, GROUP)


def test_the_best_split_makes_no_fewer_samples_than_any_other():
    _, slots, fields = SETTINGS[2]
    designs = [split(slots, fields, training) for training in range(1, 8)]
    rates = [simulate_one(design, batches=60).mean("samples_per_s") for design in designs]
    assert best(slots, fields) == designs[int(np.argmax(rates))]


def test_a_row_says_when_the_run_had_the_level_and_by_which_pipeline(monkeypatch):
    monkeypatch.setattr(pipeline_learning, "LEVEL", 0.02)
    monkeypatch.setattr(pipeline_learning, "RECIPES", ("reinforce",))
    _, slots, fields = SETTINGS[0]
    rows = trained("synchronous", cells(split(slots, fields, 0), seed=1, steps=9))
    assert [(row["recipe"], row["learning_rate"]) for row in rows] == [
        ("reinforce", 16.0),
        ("reinforce", 32.0),
    ]
    for row in rows:
        assert row["age"] == 0
        assert row["updates"] in (2, 4, 6, 8)
        assert 0 < row["seconds"] <= row["end"] == pytest.approx(9 * row["period"])
    monkeypatch.setattr(pipeline_learning, "LEVEL", 2.0)
    (row, _) = trained("synchronous", cells(split(slots, fields, 0), seed=1, steps=9))
    assert (row["updates"], row["seconds"]) == (math.inf, math.inf)
