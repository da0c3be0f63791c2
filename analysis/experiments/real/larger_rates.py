"""Learning rates for eight recipes on models of a million weights; its seeds serve nothing else."""

from functools import partial
from itertools import chain

from analysis.experiments.real.real_model import ONE_DIGIT
from analysis.experiments.real.toy_for_real import RECIPES, SHORT
from analysis.lab import Experiment
from analysis.sweeps.tuning import at_rates
from analysis.worlds.hf_bases import Made, make
from testbed.config.run import Run, grid

BY = ("task", "recipe")
OLD = 32
MODELS = (
    Made("qwen2-1m-running-sum", "running-sum", (("digits", 4),), "qwen2", 0.3, 300, 224),
    Made("gpt-neox-1m-one-digit-sums", "reasoning-gym", ONE_DIGIT, "gpt-neox", 0.25, 900, 256),
    Made("llama-1m-length", "length", SHORT, "llama", 0.55, 300, 224),
)
"""A million weights in two layers each; taught until they are right on a fifth to a half of all prompts."""
SIZES = {"steps": 80, "prompts": 8, "group": 4, "log_every": 10, "evaluation_prompts": 32}
"""80 steps of 32 responses."""
GRID = (1.5e-4, 3e-4, 6e-4, 1.2e-3, 2.4e-3)


def cells() -> tuple[Run, ...]:
    """Eight recipes at lag 32 on three models, 5 rates an octave apart, 2 seeds."""
    each = (grid(model.run(**SIZES, lag=OLD), recipe=list(RECIPES)) for model in MODELS)
    return at_rates(chain.from_iterable(each), GRID)


EXPERIMENT = Experiment(
    question="Which learning rate suits each recipe on old data, on models of a million weights?",
    source="own design: rates are chosen before they are compared",
    prepare=partial(make, MODELS),
    cells=cells,
    keys=(*BY, "learning_rate", "seed"),
    metrics=("accuracy", "area", "collapsed"),
)
