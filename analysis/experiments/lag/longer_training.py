"""M2PO on data 256 steps old against fresh data, trained until neither still gains, both tuned for that."""

from dataclasses import replace
from functools import partial

from analysis.arena.tasks import TASKS
from analysis.lab import Part, Plot, asks
from analysis.worlds.tuned_training import Family, Way, with_recipe

FRESH = replace(TASKS["long"], steps=5400, log_every=540)
OLD = replace(FRESH, lag=256)
MARGIN, SEEDS, LATER = 0.05, 32, 50_000_000
"""Accuracy that counts, seeds of a run, offset past the seeds of other tables."""

way = partial(Way, pilots=6, by="accuracy", rates=(5.6e-5, 1e-4, 1.8e-4))
ARMS = Family({
    "fresh data": way(with_recipe(FRESH, "grpo"), rates=(1.8e-4, 3.1e-4, 5.6e-4)),
    "m2po": way(with_recipe(OLD, "m2po", "tau"), (0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12)),
})  # fmt: skip

EXPERIMENT = ARMS.experiment(
    ("accuracy", "area", "start", "best", "rise accuracy", "mean rollout_corr/kl_mu_pi_k3",
     "mean actor/clip_share"),
    SEEDS, first=LATER,
    question="Does M2PO on data 256 steps old end as high as GRPO on fresh data, if both train for longer?",
    source="Zheng et al. (2025), M2PO, arXiv:2510.01161",
    differs="transformers of 7,000 weights that sort fourteen digits",
    margins={"accuracy lost": MARGIN},
    figure=Plot(
        "strips", x="accuracy: final accuracy", y="arm",
        says="Shows final accuracy after 5,400 steps of toy transformers that sort fourteen digits: GRPO on "
        "fresh data and M2PO on data 256 steps old, each at the rate and threshold that suit 5,400 steps.",
    ),
    systems={"M2PO (Prosperity before Collapse)": Part(
            "a small model; the best threshold cuts one token in 10,000, so that GRPO without a clip may do "
            "as well"
        )},
)  # fmt: skip
asks(EXPERIMENT,
    ("m2po-keeps-fresh-accuracy-at-lag-256-after-5400-steps", "After 5,400 steps, each tuned for as many, "
     "M2PO on data 256 steps old ends at most 0.05 below GRPO on fresh data.", "m2po", "fresh data"),
    by=-MARGIN,
)  # fmt: skip
