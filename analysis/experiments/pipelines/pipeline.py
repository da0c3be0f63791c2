"""Claims about asynchronous pipelines, decided by event simulation against closed forms.

What depends on the lengths that were drawn is statistical: judged over independent replications, which the
table pipeline-replications holds, with a margin, and after p is adjusted. What holds on every path, or
where nothing is random, is exact.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from analysis.experiments.pipelines.pipeline_replications import base
from analysis.lab import Evidence, Experiment, Part, exact

if TYPE_CHECKING:
    from testbed.pipeline.design import Design
    from testbed.pipeline.simulate import Report

EXPERIMENT = Experiment(
    question="What do asynchronous pipelines gain in speed, and what lag does that cost?",
    source="papers of the systems, with each claim",
    systems={
        "Periodic Asynchrony": Part(
            "that its data are on-policy, and a bound on the speed-up; twice: see periodic-speed",
            claims=("periodic-asynchrony-is-on-policy",),
        ),
    },
)

LOOSE = 0.03
"""Largest relative distance from a closed form."""


def run(design: Design, batches: int = 500) -> Report:
    """Return four replications."""
    from testbed.pipeline.simulate import simulate_one

    return simulate_one(design, replicas=4, batches=batches)


def missed(value: float, least: float) -> float:
    """Return 0 when value >= least, else 1."""
    return 0.0 if value >= least else 1.0


@EXPERIMENT.claim(
    "periodic-asynchrony-is-on-policy",
    source="Periodic Asynchrony (2025), arXiv 2511.18871",
    kind="enumerated",
    statement=(
        "Weights synced once per iteration and micro-batches trained as they arrive have staleness exactly 0 "
        "and a speed-up above 1 and below 2 over generating first."
    ),
)
def periodic() -> Evidence:
    """Return the largest lag seen, and violations of the speed-up's bounds, for three loads."""
    gaps = []
    for train_time in (20.0, 70.0, 140.0):
        whole = base(slots=64, admission="capacity", eta=0, queue_rule="block", train_time=train_time)
        plain, streamed = run(whole, 100), run(replace(whole, pieces=30), 100)
        speed_R = plain.value_R["period"] / streamed.value_R["period"]
        gaps += [float(streamed.value_R["lag_largest"].max())]
        gaps += [missed(speed_R.min(), 1.05), missed(2.0 - 1e-9, speed_R.max())]
    return exact(gaps, 0.0, "largest lag; speed-ups outside (1.05, 2) in any replication count 1")


@EXPERIMENT.claim(
    "capacity-bounds-submissions-not-lag",
    source="AReaL (2025), arXiv 2505.24298, staleness manager",
    kind="enumerated",
    statement=(
        "Under AReaL's capacity rule accepted + running responses never exceed (eta + v + 1) B, and the "
        "bound is reached; a straggler's lag still exceeds eta, unless the next batch waits for all that run."
    ),
)
def capacity() -> Evidence:
    """Return distances of the largest excess from eta B, and whether stragglers exceed eta."""
    gaps = []
    for eta in (0, 1, 4):
        design = base(admission="capacity", eta=eta, queue=eta + 1.0, train_time=25.0, sigma=1.0)
        found, waiting = run(design, 200), run(replace(design, barrier=True), 200)
        gaps += [abs(float(x) - eta * design.batch) for x in found.value_R["most_ahead"]]
        gaps.append(max(0.0, waiting.mean("lag_largest") - eta))
        if eta:
            gaps.append(missed(found.mean("lag_largest"), eta + 1.0))
    return exact(gaps, 0.0, "responses beyond the bound, or lags beyond eta")
