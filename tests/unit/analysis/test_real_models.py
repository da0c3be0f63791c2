"""What the studies on Hugging Face models stand on: models made once, a task per seed, ranks, safe lags."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from analysis.experiment import EXPERIMENTS, Experiment
from analysis.experiments.lag.safe_lag import SAFE, SIGNS, fitted, largest_safe
from analysis.experiments.real.toy_vs_real import FORETOLD, MODELS, taus
from analysis.sweeps.base_runs import SMALL
from analysis.worlds import hf_bases as made_models
from testbed.config.run import grid


@pytest.mark.slow
def test_a_model_that_is_there_is_not_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(made_models, "MODELS", tmp_path)
    model = replace(MODELS[0], steps=1, width=16, layers=1)
    made_models.make([model])
    weights = model.folder / "model.safetensors"
    written = weights.stat().st_mtime_ns
    made_models.make([model])
    assert weights.stat().st_mtime_ns == written
    assert model.run().model == str(tmp_path / model.name)


def test_a_seed_has_the_cells_that_are_drawn_for_it():
    experiment = Experiment(
        "drawn",
        question="Which?",
        source="test",
        cells=lambda: grid(SMALL, lag=[0, 1], seed=[0]),
        drawn=lambda run: run.lag == run.seed % 2,
        keys=("lag", "seed"),
    )
    assert [(run.lag, run.seed) for run in experiment.cells_at(range(4))] == [(0, 0), (0, 2), (1, 1), (1, 3)]


@pytest.mark.parametrize("name", ["toy-vs-real", "safe-lag", "larger-models"])
def test_every_seed_of_a_drawn_study_has_one_task_and_all_arms(name):
    cells = EXPERIMENTS[name].cells_at(range(100, 116))
    frame = pd.DataFrame([(run.seed, run.task, run.recipe, run.lag) for run in cells])
    assert (frame.groupby(0)[1].nunique() == 1).all()
    assert frame.groupby(0).size().nunique() == 1
    assert frame[1].nunique() == len({run.task for run in EXPERIMENTS[name].cells()})


@pytest.mark.parametrize(("score", "tau"), [([1, 2, 3], 1.0), ([3, 2, 1], -1.0), ([1, 1, 1], 0.0)])
def test_tau_is_of_the_order_of_a_seeds_stale_arms(score, tau):
    table = pd.DataFrame({"seed": 7, "lag": [16, 16, 16, 0], "accuracy": [0.1, 0.2, 0.3, 0.0]})
    table[FORETOLD] = [*score, 9.0]
    assert taus(table, lambda rows: rows[FORETOLD], (16,))[7] == pytest.approx(tau)


def test_a_safe_lag_has_only_safe_lags_below_it():
    assert largest_safe({0: 0.9, 16: 0.85, 64: 0.7, 128: 0.9}) == 16
    assert largest_safe({0: 0.5, 16: 0.9, 64: 0.45}) == 64


def test_a_forecast_follows_the_sign_that_the_safe_lag_follows():
    rng = np.random.default_rng(0)
    known = pd.DataFrame(rng.normal(size=(200, len(SIGNS))), columns=list(SIGNS))
    known[SAFE] = 3.0 - known["log10 kl"]
    assert np.abs(fitted(known, known) - known[SAFE].clip(0, np.log2(129))).max() < 0.1
