"""M2PO and GRPO on data 256 steps old, and fresh data, each tuned to train until nothing is gained."""

from dataclasses import replace
from functools import partial
from math import inf

from analysis.arena.tasks import TASKS
from analysis.lab import Part, asks, strips
from analysis.worlds.tuned_training import Family, Way, clip_of, with_recipe
from testbed.config.run import Run

FRESH = replace(TASKS["long"], steps=5400, log_every=540)
OLD = replace(FRESH, lag=256)
MARGIN, SEEDS, LATER = 0.05, 32, 50_000_000
"""Accuracy that counts, seeds of a run, offset past the seeds of other tables."""


def _clipped(width: float) -> Run:
    """Return GRPO on old data with a clip of this width in nats to both sides; inf: none."""
    return replace(OLD, recipe="grpo", recipe_args=clip_of(width))


way = partial(Way, pilots=6, by="accuracy", rates=(5.6e-5, 1e-4, 1.8e-4))
ARMS = Family({
    "fresh data": way(with_recipe(FRESH, "grpo"), rates=(1.8e-4, 3.1e-4, 5.6e-4)),
    "m2po": way(with_recipe(OLD, "m2po", "tau"), (0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12)),
    "grpo": way(_clipped, (0.12, 0.25, 0.5, 1.0, 2.0, 4.0, inf), True),
})  # fmt: skip

EXPERIMENT = ARMS.experiment(
    ("accuracy", "area", "start", "best", "rise accuracy", "mean rollout_corr/kl_mu_pi_k3",
     "mean actor/clip_share"),
    SEEDS, first=LATER,
    question="Do M2PO and GRPO on data 256 steps old end as high as fresh data, if all train for longer?",
    source="Zheng et al. (2025), M2PO, arXiv:2510.01161",
    differs="transformers of 7,000 weights that sort fourteen digits",
    margins={"accuracy lost, or gained by a threshold": MARGIN},
    figure=strips("accuracy: final accuracy", "Shows final accuracy after 5,400 steps of toy transformers "
        "that sort fourteen digits: GRPO on fresh data, M2PO and GRPO on data 256 steps old, each at the "
        "rate, threshold and clip that suit 5,400 steps."),
    systems={"M2PO (Prosperity before Collapse)": Part(
            "a small model; the best threshold cuts one token in 10,000; GRPO with a wide clip ends no lower",
            ("m2po-*",),
        )},
)  # fmt: skip
asks(EXPERIMENT,
    ("m2po-keeps-fresh-accuracy-at-lag-256-after-5400-steps", "After 5,400 steps, each tuned for as many, "
     "M2PO on data 256 steps old ends at most 0.05 below GRPO on fresh data.", "m2po", "fresh data"),
    ("grpo-keeps-fresh-accuracy-at-lag-256-after-5400-steps", "After 5,400 steps, each tuned for as many, "
     "GRPO on data 256 steps old ends at most 0.05 below GRPO on fresh data.", "grpo", "fresh data"),
    ("m2po-ends-above-grpo-at-lag-256-after-5400-steps", "After 5,400 steps, each tuned for as many, "
     "M2PO ends 0.05 above GRPO with its best clip on data 256 steps old.", "m2po", "grpo", {"by": MARGIN}),
    by=-MARGIN,
)  # fmt: skip
