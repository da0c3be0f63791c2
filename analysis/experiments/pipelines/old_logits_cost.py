"""What a pipeline pays for old log-probabilities: three exact ways to get them, an average, or none.

A pass over a batch without gradients takes a third of a pass with gradients. Old log-probabilities of partial
rollouts belong to every version that wrote a part of a response.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd

from analysis.lab import Evidence, Experiment, Plot, exact, short_of
from analysis.tables.committed import Table

if TYPE_CHECKING:
    from testbed.pipeline.design import Design

NAME = "old-logits-cost"
LOST = "Missing Old Logits (2026), arXiv:2605.12070"
LOADS = (0.5, 1.0, 2.0)
"""Seconds to train a batch over those to generate it."""
PASS = 1 / 3
"""Forward over forward and backward."""
ROUTES = ("none", "EWMA", "snapshots", "own model", "interruption")
"""No old log-probabilities; a pass of averaged weights; a pass of every stored version that wrote a part of a
response; a fourth of the trainer's devices for a model of the sampler's version; both sides wait at every
sync while the trainer, whose weights are still the old ones, reads what has been written."""


def designs(load: float) -> dict[str, Design]:
    """Return a pipeline with partial rollouts by route; lengths are equal, so that nothing is random."""
    from analysis.experiments.pipelines.pipeline_replications import base
    from testbed.pipeline import closed_forms

    plain = base(length="fixed", in_flight=True, queue_rule="block")
    response, time = plain.tau_0 * plain.length_mean, load * closed_forms.generation_time(plain)
    period = time
    for _ in range(100):  # versions of a response depend on the period, which depends on them
        slow = replace(plain, train_time=time * (1 + PASS * (1 + response / period)))
        period = closed_forms.streaming_period(slow)
    return {
        "none": replace(plain, train_time=time),
        "EWMA": replace(plain, train_time=time * (1 + PASS)),
        "snapshots": slow,
        "own model": replace(plain, train_time=time / (1 - PASS / (1 + PASS))),
        "interruption": replace(plain, train_time=time, sync_time=time * PASS),
    }


def old_logits_cost() -> Table:
    """Return the simulated seconds per batch over those without old log-probabilities, by load and route."""
    from testbed.pipeline.simulate import simulate

    rows = []
    for load in LOADS:
        found = simulate([*designs(load).values()], replicas=1, batches=100)
        periods = [each.mean("period") for each in found]
        rows += [
            {"load": load, "route": route, "cost": period / periods[0]}
            for route, period in zip(ROUTES, periods, strict=True)
        ]
    return Table.of(NAME, pd.DataFrame(rows), {"pass": PASS})


EXPERIMENT = Experiment(
    NAME,
    question="What does a pipeline pay for exact old log-probabilities, and what for an average?",
    source=f"{LOST}: exact by snapshots, a model of its own or interruption; its EWMA is revised, unread",
    differs="a cost model of passes; loading weights, memory and refilled caches cost nothing",
    compute=old_logits_cost,
    keys=("load", "route"),
    metrics=("cost",),
    figure=Plot(
        "final by setting",
        x="load",
        y="cost",
        arm=("route",),
        x_label="time to train over time to generate",
        y_label="seconds per batch over none",
    ),
    systems=("Missing Old Logits",),
)


@EXPERIMENT.claim(
    "an-average-costs-no-more-than-exact-old-log-probabilities",
    statement=(
        "With an averaged anchor a batch takes no longer than by any exact route at loads 1/2, 1 and 2; 7 % "
        "less than with snapshots from load 1 on and 14 % less than with interruptions at 1/2. Without old "
        "log-probabilities it takes a fourth less than with an average where the trainer is the bottleneck."
    ),
    kind="enumerated",
)
def cheapest() -> Evidence:
    """Return what the costs have beyond these bounds."""
    cost = old_logits_cost().frame.set_index(["load", "route"])["cost"].to_dict()
    gaps = [max(0.0, cost[load, "EWMA"] - cost[load, route]) for load in LOADS for route in ROUTES[2:]]
    gaps += [short_of(1 - cost[load, "EWMA"] / cost[load, "snapshots"], 0.07) for load in LOADS[1:]]
    gaps.append(short_of(1 - cost[0.5, "EWMA"] / cost[0.5, "interruption"], 0.14))
    gaps += [abs(1 / cost[load, "EWMA"] - 0.75) for load in LOADS[1:]]
    words = "; ".join(
        f"{route} " + ", ".join(f"{cost[load, route]:.2f}" for load in LOADS) for route in ROUTES
    )
    return exact(gaps, 0.005, f"violations; seconds over those of none at loads 1/2, 1, 2: {words}")
