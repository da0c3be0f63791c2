"""TOPR's tapered failures on a base model's data, beside naive or no failures, and importance weights.

The task is to sort ten digits, which the base model does once in fifty answers; each of its batches is used
once.
"""

from collections.abc import Mapping
from dataclasses import replace

from analysis.arena.tasks import task
from analysis.lab import Part, Plot, ask
from analysis.worlds.tuned_training import Family, Way, with_recipe

OFFLINE = replace(task("sorted"), staleness="offline")
RATES = (1e-4, 3e-4, 1e-3, 3e-3)
BASELINES = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5)
"""Subtracted from rewards of 0 and 1; 0.5 is equivalent to rewards of -1 and 1. On pilot seeds naive
REINFORCE scores .57 at .005, and at most .50 and .55 at .0025 and .001."""
WAYS: Mapping[str, Way] = {
    "TOPR": Way(with_recipe(OFFLINE, "topr", "baseline"), BASELINES, rates=RATES),
    "naive REINFORCE": Way(with_recipe(OFFLINE, "topr", "baseline", ("low", 1)), BASELINES, rates=RATES),
    "positives alone": Way(
        with_recipe(OFFLINE, "topr", "", ("baseline", 0)), rates=(*RATES, 1.8e-4, 5.6e-4, 1.8e-3)
    ),
    "importance weights": Way(with_recipe(OFFLINE, "importance", "cap"), (1, 2, 8, 32, 128), rates=RATES),
}
LEFT = Family(WAYS)


SEEDS, FIRST, MORE = 64, 32, 0.02
"""Seeds of a run; seeds that importance weights needed; smallest gain that counts, set before the table."""
WEIGHTS = "importance weights"
METRICS = (
    *("accuracy", "best", "start", "area", "collapsed", "rise accuracy", "val/entropy"),
    *("mean rollout_corr/kl_mu_pi_k3", "mean actor/clip_share"),
)


EXPERIMENT = LEFT.experiment(
    METRICS, SEEDS, (((), SEEDS), ((WEIGHTS,), FIRST)),
    question="On fixed data and without a KL term, what do tapered failures add, every arm at its best?",
    source="TOPR, Le Roux et al. (2025), arXiv:2503.14286",
    differs="a transformer of 7,000 weights that sorts ten digits, right once in fifty answers; 300 batches "
    "of 32 new answers of the base model, rewards 0 and 1 minus a tuned baseline",
    margins={"accuracy gained": MORE},
    figure=Plot(
        "strips", x="accuracy: final accuracy", y="arm",
        says="Shows final accuracy of a transformer of 7,000 weights that sorts ten digits, after 300 "
        "updates on its base model's answers; TOPR weights failures by the sequence ratio, at most 1, naive "
        "REINFORCE by 1; positives alone drops them; importance weights apply the capped ratio to all "
        "answers; rate and baseline or cap are tuned for each arm.",
    ),
    systems={"TOPR": Part("no larger model; the baseline is tuned for TOPR and for naive REINFORCE")},
)  # fmt: skip
for _name, _statement, _rival in (
    ("topr-ends-above-naive-reinforce-offline",
     "Fully offline and without a KL term TOPR ends 0.02 more accurate than naive REINFORCE.",
     "naive REINFORCE"),
    ("topr-ends-above-positives-alone-offline",
     "Fully offline and without a KL term TOPR ends 0.02 more accurate than learning from successes alone.",
     "positives alone"),
    ("topr-ends-above-importance-weights-offline",
     "Fully offline and without a KL term TOPR ends 0.02 more accurate than importance weights at their best "
     "cap.", WEIGHTS),
):  # fmt: skip
    ask(EXPERIMENT, _name, _statement, "TOPR", _rival, MORE)
