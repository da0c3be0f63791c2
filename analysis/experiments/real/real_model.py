"""A Hugging Face model, trained here in seconds, takes two recipes: the last part of `testbed demo`."""

from dataclasses import replace

from analysis.lab import Experiment
from analysis.sweeps.base_runs import HF_RUN
from testbed.config.run import Run, grid

ONE_DIGIT = (
    ("dataset_args", "min_terms=2 max_terms=2 min_digits=1 max_digits=1"),
    ("prompt", "{expression} ="),
)
"""reasoning-gym's chain_sum with two one-digit terms, which a model of 84,000 weights learns in seconds."""

EXPERIMENT = Experiment(
    question="Do the bench's recipes and lags run on a Hugging Face model as they do on the toy?",
    source="this project",
    differs="its cells need the folder of a model, which the demo makes",
    command="testbed demo",
)


def demo_model(model: str) -> tuple[Run, ...]:
    """Return the cells that run the demo's tiny Hugging Face model with two recipes at lags 0 and 8."""
    base = replace(HF_RUN, model=model, task_args=ONE_DIGIT, learning_rate=6e-4)
    return grid(base, recipe=["reinforce", "grpo"], lag=[0, 8])
