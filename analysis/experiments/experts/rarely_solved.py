"""POPE where its rivals meet right answers now and then: sums of ten digits, each arm tuned."""

from dataclasses import replace
from functools import partial
from typing import Any

from analysis.experiments.experts.sparse_arms import HARD, MUCH, POPE, known
from analysis.lab import asks, strips
from analysis.worlds.tuned_training import PILOTS, Family, Way, with_recipe

SEEDS, LATER, FRESH = 32, 370_000, 10_000
"""Seeds of a run, offset past those of other tables, and of early arms past those of the others."""
RARELY = replace(HARD, task_args=(("digits", 10), ("modulus", 4)))
"""The base solves about one in 3,000, and a run has 12,800 responses."""


def _way(
    name: str, knob: str = "", ladder: tuple[float, ...] = (0,), whole: bool = False, **more: Any
) -> Way:
    at = with_recipe(RARELY, name, knob, **more)
    return way(lambda value: known(at(value)), ladder, whole)


way = partial(Way, rates=(1.8e-3, 3e-3, 5.6e-3), pilots=8)
WAYS = {
    "grpo": _way("grpo"),
    "wide clip": _way("grpo", "eps_high", (0.28, 0.5, 1.0, 2.0, 4.0, 8.0),
                      lag=2, staleness="periodic", staleness_args=(("period", 4),)),
    # Most early batches have no other gradient, and Adam takes full steps along any above its 1e-8.
    "entropy bonus": _way("grpo", "entropy", (0, 5e-10, 1e-9, 2e-9, 4e-9, 8e-9, 1.6e-8), True),
    "pass@k": _way("max_at_k", "k", (2, 4, 8), True),
    "shortest prefixes": way(
        lambda share: known(RARELY, share=share, shortest=True), (0.125, 0.25, 0.5, 0.75, 1.0), True
    ),
}  # fmt: skip
EARLY = {f"early, {name}": replace(each, by="area", pilots=PILOTS) for name, each in WAYS.items()}
SOLVED = Family({**WAYS, **EARLY}, by="accuracy")
"""Arms at their best settings for the final accuracy, and (early) for the mean accuracy along training."""

EXPERIMENT = SOLVED.experiment(
    ("accuracy", "area", "start", "rise accuracy", "mean rollout_corr/kl_mu_pi_k3", "mean actor/clip_share"),
    SEEDS, (((), SEEDS), (tuple(EARLY), SEEDS, FRESH)), LATER,
    question="Where GRPO meets a right answer now and then, do its repairs learn what oracle prefixes teach?",
    source=POPE,
    differs="toy transformers; sums of ten digits modulo 4 that the base solves once in 3,000, with 12,800 "
    "responses and 64 prompts; neither their traces cost anything, nor the 4,608 tries that choose prefixes; "
    "no instruction beside a prefix, no easy prompts",
    margins={"accuracy, at the end or along training": MUCH},
    figure=strips("accuracy: final accuracy", "Shows final accuracy of toy transformers on new sums of ten "
        "digits, of which the base solves one in 3,000, by GRPO, by GRPO with a wider clip on data up to "
        "three steps old, with an entropy bonus, for the best of k, and from the shortest prefixes of a "
        "right trace after which a try succeeds, each arm at its best setting for that or (early) for the "
        "mean accuracy along training."),
    systems={"POPE": "time to learn, as rivals end near, without the tries that choose prefixes, as many as "
             "72 of the 200 steps have; no instruction; no easy prompts"},
)  # fmt: skip

REPAIRS = ("grpo", "wide clip", "entropy bonus", "pass@k")
THAN = "new prompts, without a prefix, than GRPO, than with a wider clip, an entropy bonus, and pass@k as the"
asks(EXPERIMENT,
    ("shortest-prefixes-end-above-repairs", "Where the base solves one try in 3,000, GRPO from the shortest "
     f"prefixes after which a try succeeds ends 0.1 more accurate at {THAN} objective.", "shortest prefixes",
     REPAIRS, MUCH, "accuracy", POPE, {"off": {"arm": "grpo"}}),
    ("shortest-prefixes-learn-faster-than-repairs", "Where the base solves one try in 3,000, GRPO "
     "from the shortest prefixes after which a try succeeds averages 0.1 more accuracy along training at "
     f"{THAN} objective, each at its best for it.", "early, shortest prefixes",
     tuple(f"early, {each}" for each in REPAIRS), MUCH, "area", POPE, {"off": {"arm": "early, grpo"}}),
)  # fmt: skip
