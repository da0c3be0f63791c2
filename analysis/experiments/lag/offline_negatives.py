"""TOPR's tapered failures on a base model's data, beside naive or no failures, and importance weights.

The task is to sort ten digits, which the base model does once in eighty answers; each of its batches is used
once.
"""

from dataclasses import replace
from functools import partial

from analysis.arena.tasks import task
from analysis.lab import asks, strips
from analysis.worlds.tuned_training import Family, Way, with_recipe

OFFLINE = replace(
    task("sorted"), staleness="offline", teacher_noise=0.35, evaluation_prompts=512, log_every=60
)
"""A noise of .35 leaves rivals at .2 to .5 on pilots, .3 above .5, .4 below .15. Settings were chosen on
64 held-out prompts, which leave most of the variance of a difference to the evaluation."""
BASELINES = (0.00125, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
"""Subtracted from rewards of 0 and 1."""
WEIGHTS, PILOTS = "importance weights", 32
way = partial(Way, rates=(5.6e-4, 1e-3, 1.8e-3), pilots=PILOTS)
LEFT = Family({
    "positives alone": way(with_recipe(OFFLINE, "topr", "", ("baseline", 0))),
    WEIGHTS: way(with_recipe(OFFLINE, "importance", "cap"), (4, 8, 16, 32, 64, 128, 256)),
    "naive REINFORCE": way(with_recipe(OFFLINE, "topr", "baseline", ("low", 1)), BASELINES),
    "TOPR": way(with_recipe(OFFLINE, "topr", "baseline"), BASELINES),
})  # fmt: skip
MANY, SEEDS, FEWER, LATER, MORE = 512, 128, 32, 410_000, 0.02
"""Seeds of a run for TOPR and positives alone, for naive REINFORCE and for importance weights; offset past
those of other tables; gain that counts."""
METRICS = (
    *("accuracy", "best", "start", "area", "collapsed", "rise accuracy", "val/entropy"),
    *("mean rollout_corr/kl_mu_pi_k3", "mean actor/clip_share"),
)


EXPERIMENT = LEFT.experiment(
    METRICS, MANY, (((), MANY), (("naive REINFORCE",), SEEDS), ((WEIGHTS,), FEWER)), LATER,
    question="On fixed data and without a KL term, what do tapered failures add, every arm at its best?",
    source="TOPR, Le Roux et al. (2025), arXiv:2503.14286",
    differs="a transformer of 7,000 weights that sorts ten digits, right once in eighty answers; 300 batches "
    "of 32 new answers of the base model, rewards 0 and 1 minus a tuned baseline",
    margins={"accuracy gained": MORE},
    figure=strips("accuracy: final accuracy", "Shows final accuracy of a transformer of 7,000 weights that "
        "sorts ten digits, after 300 updates on its base model's answers; TOPR weights failures by the "
        "sequence ratio, at most 1, naive REINFORCE by 1; positives alone drops them; importance weights "
        "apply the capped ratio to all answers; rate and baseline or cap are tuned for each arm."),
    systems={"TOPR": "no larger model; the baseline is tuned for TOPR and for naive REINFORCE"},
)  # fmt: skip
BASE = "Fully offline, where the base is right once in eighty answers, TOPR ends 0.02 more accurate than"
asks(EXPERIMENT,
    ("topr-ends-above-naive-reinforce-with-few-positives", f"{BASE} naive REINFORCE.", "TOPR",
     "naive REINFORCE"),
    ("topr-ends-above-positives-alone-with-few-positives", f"{BASE} learning from successes alone.", "TOPR",
     "positives alone"),
    ("topr-ends-above-importance-weights-with-few-positives", f"{BASE} importance weights at their best cap.",
     "TOPR", WEIGHTS),
    by=MORE,
)  # fmt: skip
