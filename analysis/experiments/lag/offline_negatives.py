"""TOPR's tapered failures on a base model's data alone, beside naive ones, none, and importance weights."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.lab import Experiment, Part, Plot, of_seeds
from analysis.worlds.offline_ways import LEFT
from analysis.worlds.pilots import ask
from analysis.worlds.tuned_training import PILOTS

NAME = "offline-negatives"
SEEDS, FIRST, MORE = 64, 32, 0.02
"""Seeds of a run, and of importance weights, whose claim so many decided; accuracy that counts as gained, set
before the table was made."""
WEIGHTS = "importance weights"
METRICS = (
    *("accuracy", "best", "start", "area", "collapsed", "rise accuracy", "val/entropy"),
    *("mean rollout_corr/kl_mu_pi_k3", "mean actor/clip_share"),
)


def rows(seeds: Sequence[Any]) -> pd.DataFrame:
    """Return a row per arm and seed, each arm at the settings that are best on pilot seeds."""
    others = [name for name in LEFT.ways if name != WEIGHTS]
    return pd.concat([LEFT.table(METRICS, seeds, others), LEFT.table(METRICS, seeds[:FIRST], [WEIGHTS])])


EXPERIMENT = Experiment(
    question="On fixed data and without a KL term, what do tapered failures add, every arm at its best?",
    source="TOPR, Le Roux et al. (2025), arXiv:2503.14286",
    differs=(
        "a transformer of 7,000 weights on ten digits in order, right once in fifty; 300 batches of 32 new "
        "answers of the base, rewards 0 and 1 less a tuned baseline"
    ),
    compute=of_seeds(NAME, rows, SEEDS, {"pilots": PILOTS, "steps": 300}),
    keys=("run", "arm", "seed"),
    metrics=("rate", "knob", "at end", *METRICS),
    margins={"accuracy gained": MORE},
    figure=Plot(
        "strips",
        x="accuracy: final accuracy",
        y="arm",
        says="Shows final accuracy of a transformer of 7,000 weights that puts ten digits in order after 300 "
        "updates on its base model's answers: TOPR weights failures by the sequence's ratio cut at 1, naive "
        "REINFORCE by 1, positives alone leave them out, importance weights count all answers by the cut "
        "ratio; rate and baseline or cap tuned for each.",
    ),
    systems={"TOPR": Part("no larger model; the baseline is tuned for TOPR and for naive REINFORCE")},
)
for _name, _statement, _rival in (
    ("topr-ends-above-naive-reinforce-offline",
     "Fully offline and without a KL term TOPR ends 0.02 more accurate than naive REINFORCE.",
     "naive REINFORCE"),
    ("topr-ends-above-positives-alone-offline",
     "There it ends 0.02 more accurate than learning from successes alone.", "positives alone"),
    ("topr-ends-above-importance-weights-offline",
     "There it ends 0.02 more accurate than importance weights at their best cap.", WEIGHTS),
):  # fmt: skip
    ask(EXPERIMENT, _name, _statement, "TOPR", _rival, MORE)
