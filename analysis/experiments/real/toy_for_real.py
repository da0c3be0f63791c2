"""The toy LLM on the tasks, recipes and lags of the study on real models: what it foretells of them.

Its seeds are tuning seeds: medians over them are a prediction, judged on real models with other seeds.
"""

from dataclasses import replace

from analysis.experiments.real.real_model import ONE_DIGIT
from analysis.lab import Experiment
from analysis.sweeps.base_runs import TOY
from analysis.sweeps.tuning import tuning_seeds
from analysis.worlds.hf_bases import Made
from testbed.config.run import Run, grid

RECIPES = ("grpo", "tis", "gspo", "cispo", "m2po", "vcpo", "topr", "asymre")
LAGS = (16, 64)
STEPS, PROMPTS, LOG_EVERY = 150, 8, 10
KEYS = ("task", "recipe", "lag", "seed")
METRICS = ("accuracy", "best", "start", "area", "collapsed", "collapse_step", "steps_to 0.5")
SHORT = (("digits", 2), ("limit", 6), ("modulus", 8))
MODELS = (
    Made("qwen2-running-sum", "running-sum", (("digits", 6),), "qwen2", noise=0.25),
    Made("gpt-neox-one-digit-sums", "reasoning-gym", ONE_DIGIT, "gpt-neox", noise=0.4),
    Made("llama-length", "length", SHORT, "llama", noise=0.55),
)
"""A multi-step task, sums written in characters, and answers of free length: about 70,000 weights each."""


def arms(run: Run) -> tuple[Run, ...]:
    """Return eight recipes at lags 16 and 64, and GRPO on-policy beside them, of one starting run."""
    stale = grid(run, recipe=list(RECIPES), lag=list(LAGS))
    return (replace(run, recipe="grpo", lag=0), *stale)


def cells() -> tuple[Run, ...]:
    """The arms on three tasks, 16 tuning seeds; a base model per seed, taught by the same noise."""
    found = []
    for model in MODELS:
        toy = replace(TOY, task=model.task, task_args=model.task_args, teacher_noise=model.noise)
        toy = replace(toy, steps=STEPS, prompts=PROMPTS, log_every=LOG_EVERY, warm_start_steps=300)
        found += [replace(cell, seed=seed) for seed in tuning_seeds(16) for cell in arms(toy)]
    return tuple(found)


EXPERIMENT = Experiment(
    question="How do eight recipes end on the toy LLM where they are also tried on real models?",
    source="this project",
    cells=cells,
    keys=KEYS,
    metrics=METRICS,
)
