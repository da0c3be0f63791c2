"""examples/minimal_loop.py: the story of a step with public functions is the step of the big loop."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np

from testbed.training.loop import train

PATH = Path(__file__).parents[3] / "examples" / "minimal_loop.py"


def example():
    spec = importlib.util.spec_from_file_location("minimal_loop", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_is_what_the_loop_does_bit_for_bit():
    story = example()
    story.RUN = replace(story.RUN, warm_start_steps=5)
    rewards = story.main(steps=8)
    args = (("advantage", "group_std"), ("aggregation", "token_mean"), ("eps_high", 0.28))
    same = replace(story.RUN, recipe="ppo_clip", recipe_args=args, lag=story.LAG, steps=8, log_every=1)
    table = train(replace(same, learning_rate=story.RATE, optimizer="adam"))
    assert np.allclose(table["reward/mean"], rewards, rtol=0, atol=1e-6)


def test_the_example_is_short_enough_to_read_at_once():
    assert len(PATH.read_text().splitlines()) <= 60
