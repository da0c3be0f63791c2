"""REC on a million weights: is it the clip or the importance weight that keeps them alive offline?"""

from dataclasses import replace
from functools import partial

from analysis.experiments.lag.rec import ARMS
from analysis.experiments.real import rec_real
from analysis.experiments.real.larger_rates import MODELS, SIZES
from analysis.lab import Part, Stop
from analysis.worlds.hf_bases import make
from testbed.config.run import Run, grid

STEPS, RATE = 100, 6e-4
"""The larger of the two best rates of `larger-rates` on this task."""


def cells() -> tuple[Run, ...]:
    """REC with and without importance weights, and without its clip; all data come from the first weights."""
    base = MODELS[0].run(**SIZES | {"steps": STEPS}, lag=STEPS, learning_rate=RATE)
    return tuple(
        cell
        for recipe, arguments in ARMS[:3]
        for cell in grid(base, recipe=[recipe], recipe_args=[arguments])
    )


EXPERIMENT = replace(
    rec_real.EXPERIMENT,
    name="rec-larger",
    question="Is it REC's clip or its importance weight that keeps a million weights alive offline?",
    differs="a Qwen2 of a million weights on running sums; 100 steps on data of the first weights",
    prepare=partial(make, MODELS[:1]),
    cells=cells,
    stop=Stop(block=16, cap=32),
    systems={
        "REC (Group-relative REINFORCE is off-policy)": Part(
            "the clip against the importance weight, on a Hugging Face model of a million weights, offline"
        ),
    },
)


for _name, _check, _statement in (
    (
        "rec-importance-weights-change-nothing-on-a-larger-model",
        rec_real.rec_importance_weights_change_nothing_on_a_real_model,
        "With REC's one-sided clip, importance weights change the final accuracy of a model of a million "
        "weights by less than 0.05 in the median over seeds, offline.",
    ),
    (
        "rec-clip-prevents-collapse-on-a-larger-model",
        rec_real.rec_clip_prevents_collapse_on_a_real_model,
        "On offline data a model of a million weights collapses on more seeds when REC's clip is taken away.",
    ),
):
    EXPERIMENT.claim(_name, statement=_statement)(_check)
