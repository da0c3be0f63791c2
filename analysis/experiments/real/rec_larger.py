"""REC on a million weights: is it the clip or the importance weight that keeps them alive offline?"""

from functools import partial

import pandas as pd

from analysis.claims import Evidence
from analysis.experiment import Experiment, Part, Stop
from analysis.experiments.lag.rec import ARMS, MARGIN, SOURCE, WEIGHTS, lost_offline, of_arm, same_accuracy
from analysis.experiments.real.larger_rates import MODELS, SIZES
from analysis.made_models import make
from analysis.sequential import happens_more_often
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


EXPERIMENT = Experiment(
    "rec-larger",
    question="Is it REC's clip or its importance weight that keeps a million weights alive offline?",
    source=SOURCE,
    differs="a Qwen2 of a million weights on running sums; 100 steps on data of the first weights",
    prepare=partial(make, MODELS[:1]),
    cells=cells,
    stop=Stop(block=16, cap=32),
    keys=("recipe", "recipe_args.weight", "lag", "seed"),
    metrics=("accuracy", "best", "start", "collapsed", "actor/entropy", "mean actor/clip_share"),
    margins={"accuracy that counts as equal": MARGIN},
    systems={
        "REC (Group-relative REINFORCE is off-policy)": Part(
            "the clip against the importance weight, on a Hugging Face model of a million weights, offline"
        ),
    },
)


@EXPERIMENT.claim()
def rec_importance_weights_change_nothing_on_a_larger_model(table: pd.DataFrame) -> Evidence:
    """With REC's one-sided clip, importance weights change the final accuracy of a model of a million weights
    by less than 0.05 in the median over seeds, offline.
    """
    return same_accuracy(*(of_arm(table, "accuracy", "rec", weight) for weight in WEIGHTS))


@EXPERIMENT.claim()
def rec_clip_prevents_collapse_on_a_larger_model(table: pd.DataFrame) -> Evidence:
    """On offline data a model of a million weights collapses on more seeds when REC's clip is taken away."""
    opened, clipped = lost_offline(table)
    both = pd.DataFrame({"open": opened, "clipped": clipped}) > 0.5
    counts = f"{int(both['open'].sum())} without the clip, {int(both['clipped'].sum())} with it"
    return happens_more_often(opened, clipped, f"collapsed of {len(both)} seeds: {counts}")
