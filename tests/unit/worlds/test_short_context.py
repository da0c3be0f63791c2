"""A model whose context is too short for a task is refused before the start; a run bears the estimate out."""

import pytest
import transformers
from support.tiny_models import write_model

from testbed.config.run import Run
from testbed.errors import UserError
from testbed.execution.preflight import prepare
from testbed.training.loop import train


def model(folder, positions):
    shape = {"vocab_size": 16, "n_embd": 8, "n_layer": 1, "n_head": 1}
    return str(write_model(folder, transformers.GPT2Config(**shape, n_positions=positions)))


def run(folder, digits=4):
    args = (("digits", digits), ("modulus", 4))
    return Run(task="running-sum", task_args=args, policy="hf", model=folder, prompts=2, group=2, steps=1)


def test_a_context_that_is_too_short_is_refused_before_anything_is_written(tmp_path):
    short = model(tmp_path / "m", 7)
    with pytest.raises(UserError, match=r"needs 8 positions.*up to 5 tokens.* of up to 4.* has 7\."):
        prepare([run(short)], folder=tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_a_context_that_just_suffices_trains(tmp_path):
    enough = run(model(tmp_path / "m", 8))
    prepare([enough])
    assert len(train(enough)["step"]) == 1


def test_the_estimate_is_tight_a_position_less_ends_the_run(tmp_path):
    with pytest.raises(UserError, match="reach 8 tokens, but the model has 7 positions"):
        train(run(model(tmp_path / "m", 7)))
