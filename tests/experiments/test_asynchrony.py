"""The learning half of the pipeline frontier: what its table holds, and what its claims count."""

import math

import numpy as np
import pandas as pd
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


def test_every_setting_is_a_pipeline_that_the_learner_can_follow():
    for setting, slots, fields in SETTINGS:
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


def table(**seconds):
    """Two seeds of one arm: seconds per setting, runs that end after 100 s."""
    rows = [
        {"setting": name.replace("_", " "), "recipe": "grpo", "learning_rate": 16.0, "seed": seed}
        | {"seconds": value, "end": 100.0}
        for name, values in seconds.items()
        for seed, value in enumerate(values)
    ]
    return pd.DataFrame(rows)


def test_a_gain_is_the_log_of_seconds_over_seconds_seed_by_seed():
    found = pipeline_learning.gain(table(a=[80.0, 60.0], b=[20.0, 30.0]).iloc[::-1], "grpo", "a", "b")
    assert found.tolist() == pytest.approx([math.log(4), math.log(2)])


def test_a_run_that_is_never_there_counts_against_the_claim_on_either_side():
    found = pipeline_learning.gain(table(a=[math.inf, 50.0], b=[20.0, math.inf]), "grpo", "a", "b")
    assert found.tolist() == pytest.approx([math.log(100 / 20), math.log(50 / 1000)])


def test_settings_of_other_seeds_are_not_compared():
    rows = table(a=[80.0, 60.0], b=[20.0, 30.0])
    with pytest.raises(ValueError, match="have other seeds"):
        pipeline_learning.gain(rows[(rows["setting"] == "a") | (rows["seed"] == 0)], "grpo", "a", "b")


def test_the_weakest_gain_decides_by_its_own_mean():
    found = pipeline_learning.faster({"x": np.array([1.0, 1.1, 0.9]), "y": np.array([-0.2, 0.2, -0.1])})
    assert found.effect == pytest.approx(-0.1 / 3)
    assert (found.n, len(found.cells)) == (3, 2)
    assert found.note == "mean log speed-up in the worst arm, y; speed-ups 2.72 x, 0.97 y"


def test_ten_arms_that_are_all_faster_are_not_refuted_by_their_minima():
    # A seed's smallest gain of ten is negative on average, although every arm gains .05 (deviation .2).
    rng = np.random.default_rng(0)
    for _ in range(200):
        found = pipeline_learning.faster({f"arm {i}": rng.normal(0.05, 0.2, 8) for i in range(10)})
        assert found.e["refuted"] < 40
