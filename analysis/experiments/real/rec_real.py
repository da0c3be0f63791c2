"""REC again, on a Hugging Face model: is it the clip or the importance weight that keeps it alive?"""

from functools import partial

import pandas as pd

from analysis.experiments.lag.rec import ARMS, MARGIN, SOURCE, WEIGHTS, lost_offline, of_arm, same_accuracy
from analysis.experiments.real.toy_for_real import LOG_EVERY, MODELS, PROMPTS, STEPS
from analysis.experiments.real.toy_vs_real import RATE
from analysis.lab import Evidence, Experiment, Part, Stop, happens_more_often
from analysis.worlds.hf_bases import make
from testbed.config.run import Run, grid

MODEL = MODELS[0]
LAGS = (64, STEPS)
"""The last one is offline: all data come from the first weights."""


def cells() -> tuple[Run, ...]:
    """REC with and without importance weights at lag 64 and offline, and offline without its clip."""
    base = MODEL.run(steps=STEPS, prompts=PROMPTS, log_every=LOG_EVERY, learning_rate=RATE)
    clipped, weighted, opened, _, _ = ARMS
    found: list[Run] = []
    for (recipe, arguments), lags in ((clipped, LAGS), (weighted, LAGS), (opened, LAGS[1:])):
        found += grid(base, recipe=[recipe], recipe_args=[arguments], lag=list(lags))
    return tuple(found)


EXPERIMENT = Experiment(
    "rec-real",
    question="Is it REC's clip or its importance weight that keeps a Hugging Face model alive on stale data?",
    source=SOURCE,
    differs="a Qwen2 of 83,000 weights on running sums in place of large language models; 150 steps",
    prepare=partial(make, [MODEL]),
    cells=cells,
    stop=Stop(block=16, cap=32, begun_with=16),
    keys=("recipe", "recipe_args.weight", "lag", "seed"),
    metrics=("accuracy", "best", "start", "collapsed", "actor/entropy", "mean actor/clip_share"),
    margins={"accuracy that counts as equal": MARGIN},
    systems={
        "REC (Group-relative REINFORCE is off-policy)": Part(
            "the clip against the importance weight, on a Hugging Face model"
        ),
    },
)


@EXPERIMENT.claim()
def rec_importance_weights_change_nothing_on_a_real_model(table: pd.DataFrame) -> Evidence:
    """With REC's one-sided clip, importance weights change a Hugging Face model's final accuracy by less than
    0.05 in the median over seeds, at lag 64 and offline.
    """
    return same_accuracy(*(of_arm(table, "accuracy", "rec", weight) for weight in WEIGHTS))


@EXPERIMENT.claim()
def rec_clip_prevents_collapse_on_a_real_model(table: pd.DataFrame) -> Evidence:
    """On offline data a Hugging Face model collapses on more seeds when REC's clip is taken away."""
    opened, clipped = lost_offline(table)
    both = pd.DataFrame({"open": opened, "clipped": clipped}) > 0.5
    counts = f"{int(both['open'].sum())} without the clip, {int(both['clipped'].sum())} with it"
    return happens_more_often(opened, clipped, f"collapsed of {len(both)} seeds: {counts}")
