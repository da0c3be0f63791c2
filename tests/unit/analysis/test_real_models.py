"""Studies on Hugging Face models: models made once, a task per seed, ranks."""

from dataclasses import replace

import pandas as pd
import pytest

from analysis.experiment import EXPERIMENTS, Experiment
from analysis.experiments.real import model_size
from analysis.experiments.real.larger_models import FORETOLD, MODELS, taus
from analysis.sweeps.base_runs import SMALL
from analysis.worlds import hf_bases as made_models
from testbed.config.run import grid
from testbed.policies.hf.tiny_model import save_random_model
from testbed.worlds.task_registry import token_task


def test_models_of_the_size_study_have_as_many_weights_as_it_says(tmp_path):
    from safetensors import safe_open

    for weights, model in list(model_size.MODELS.items())[:2]:
        task = token_task(model.run())
        save_random_model(tmp_path, task, 0, model.width, model.layers, model.architecture)
        with safe_open(tmp_path / "model.safetensors", "pt") as file:
            assert sum(file.get_tensor(name).numel() for name in file.keys()) == weights  # noqa: SIM118


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


def test_every_seed_of_a_drawn_study_has_one_task_and_all_arms():
    study = EXPERIMENTS["larger-models"]
    cells = study.cells_at(range(100, 116))
    frame = pd.DataFrame([(run.seed, run.task, run.recipe, run.lag) for run in cells])
    assert (frame.groupby(0)[1].nunique() == 1).all()
    assert frame.groupby(0).size().nunique() == 1
    assert frame[1].nunique() == len({run.task for run in study.cells()})


@pytest.mark.parametrize(("score", "tau"), [([1, 2, 3], 1.0), ([3, 2, 1], -1.0), ([1, 1, 1], 0.0)])
def test_tau_is_of_the_order_of_a_seeds_stale_arms(score, tau):
    table = pd.DataFrame({"seed": 7, "lag": [16, 16, 16, 0], "accuracy": [0.1, 0.2, 0.3, 0.0]})
    table[FORETOLD] = [*score, 9.0]
    assert taus(table, (16,))[7] == pytest.approx(tau)
