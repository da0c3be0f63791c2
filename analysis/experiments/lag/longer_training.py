"""M2PO and GRPO on data 256 steps old, and fresh data, each tuned to train until nothing is gained."""

from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path

from analysis.arena.tasks import TASKS
from analysis.experiments.arena.finer_settings import clipped
from analysis.lab import Experiment, Part, asks, strips
from analysis.worlds.tuned_training import Family, Way, with_recipe
from testbed.config.run import Run

MARGIN, SEEDS, LATER = 0.05, 32, 50_000_000
"""Accuracy that counts, seeds of a run, offset past the seeds of other tables."""
METRICS = ("accuracy", "area", "start", "best", "rise accuracy", "mean rollout_corr/kl_mu_pi_k3",
           "mean actor/clip_share")  # fmt: skip


def family(task: str, file: str) -> Family:
    """Return fresh data, M2PO and GRPO with a clip of some nats (inf: none) on a task of the arena."""
    fresh = replace(TASKS[task], steps=5400, log_every=540)
    old = replace(fresh, lag=256)

    def grpo(width: float) -> Run:
        return replace(old, recipe="grpo", recipe_args=clipped(width).recipe_args)

    way = partial(Way, pilots=6, by="accuracy", rates=(5.6e-5, 1e-4, 1.8e-4))
    return Family({
        "fresh data": way(with_recipe(fresh, "grpo"), rates=(1.8e-4, 3.1e-4, 5.6e-4)),
        "m2po": way(with_recipe(old, "m2po", "tau"), (0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12)),
        "grpo": way(grpo, (0.12, 0.25, 0.5, 1.0, 2.0, 4.0, inf), True),
    }, Path(file).with_suffix(".csv"))  # fmt: skip


def ask_all(experiment: Experiment, on: str = "", said: str = "") -> None:
    """Ask whether M2PO and GRPO keep fresh accuracy, and whether M2PO ends higher; on: ends the names."""
    start = f"After 5,400 steps{said}, each tuned for as many,"
    kept = "on data 256 steps old ends at most 0.05 below GRPO on fresh data."
    at = f"at-lag-256{on}-after-5400-steps"
    asks(experiment,
        (f"m2po-keeps-fresh-accuracy-{at}", f"{start} M2PO {kept}", "m2po", "fresh data"),
        (f"grpo-keeps-fresh-accuracy-{at}", f"{start} GRPO {kept}", "grpo", "fresh data"),
        (f"m2po-ends-above-grpo-{at}", f"{start} M2PO ends 0.05 above GRPO with its best clip on data "
         "256 steps old.", "m2po", "grpo", {"by": MARGIN}),
        by=-MARGIN,
    )  # fmt: skip


ARMS = family("long", __file__)
EXPERIMENT = ARMS.experiment(
    METRICS, SEEDS, first=LATER,
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
ask_all(EXPERIMENT)
