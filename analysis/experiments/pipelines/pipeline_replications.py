"""Replications of simulated pipelines, which claims compare with closed forms.

`testbed evidence run pipeline-replications --write` writes the table. A replication is a stream of random
numbers; every pipeline meets the same streams, so that rows of one replication may be compared as pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.lab import Evidence, Experiment, Part, must_exceed
from analysis.tables.committed import Table
from envs.arrays import Floats

if TYPE_CHECKING:
    from testbed.pipeline.design import Design

NAME = "pipeline-replications"
REPLICAS = 8
FRESH = range(REPLICAS, 24)
"""Replications of a second run, added when closed forms had held on the first eight."""
VALUES = (
    "period",
    "lag_sample",
    "lag_token",
    "length_generated",
    "length_trained",
    "length_bias",
    "drop_rate",
)
COLUMNS = ("claim", "pipeline", "replica", *VALUES)
LOOSE = 0.03
"""Largest relative distance from a closed form."""
BARRIER = {"admission": "capacity", "barrier": True, "queue_rule": "block"}


def base(**fields: Any) -> Design:
    """Return 240 slots, batches of 240 = 30 groups of 8 that take 20 s to generate, some fields replaced."""
    from testbed.pipeline.design import Design

    return replace(Design(slots=240, batch=240, train_time=15.0, queue_rule="drop-oldest"), **fields)


def discards() -> dict[str, Design]:
    """A heavy tail of lengths with groups dropped by age, and with the oldest of a full queue dropped."""
    heavy: dict[str, Any] = {"sigma": 0.9, "length_mean": 1354.0, "train_time": 25.0}
    return {
        "by age": base(**heavy, max_age=1, queue_rule="block"),
        "full queue": base(**heavy | {"train_time": 40.0}),
    }


def pools(**fields: Any) -> dict[str, Design]:
    """One pool that generates, then trains, and its best split into two that work at once."""
    equal: dict[str, Any] = {"length": "fixed", "tau_1": 3e-4, "group": 8, "batch": 512, "queue": 4.0}
    equal |= {"queue_rule": "block"} | fields
    whole = base(**equal | BARRIER, slots=512, engines=32, pools="colocated", train_time=24.8 / 3)
    return {"whole": whole, "split": base(**equal, slots=384, engines=24, train_time=24.8 / 3 * 32 / 8)}


PIPELINES = {
    "discard-stale-shortens-responses": (discards, 500),
    "stragglers-make-pipelining-pay": (lambda: pools(length="lognormal"), 120),
}
"""Claim -> its pipelines and the batches that a replication measures."""


def replications(claim: str, replicas: int = REPLICAS) -> pd.DataFrame:
    """Return a row per pipeline of the claim and replication; more of these leave the first as they are."""
    from testbed.pipeline.simulate import simulate_one

    make, batches = PIPELINES[claim]
    frames = []
    for name, design in make().items():
        found = simulate_one(design, replicas=replicas, batches=batches).value_R
        columns = {value: found[value] for value in VALUES}
        frames.append(pd.DataFrame({"claim": claim, "pipeline": name, "replica": range(replicas), **columns}))
    return pd.concat(frames, ignore_index=True)[list(COLUMNS)]


def table() -> Table:
    """Return the table of every claim's replications."""
    frame = pd.concat([replications(claim, FRESH.stop) for claim in PIPELINES], ignore_index=True)
    return Table.of(NAME, frame, {"replicas": FRESH.stop, "seed": 0})


EXPERIMENT = Experiment(
    question="Do closed forms of speed and lag hold for random pipelines, replication by replication?",
    source="papers of the systems, with each claim",
    compute=table,
    fresh=FRESH,
    keys=("claim", "pipeline", "replica"),
    metrics=VALUES,
    margins={"relative distance from a closed form": LOOSE},
    systems={
        "LlamaRL": Part(
            "whether splitting is strictly faster, at spread-out lengths; at scale: see gains-at-scale",
            claims=("stragglers-make-pipelining-pay",),
        )
    },
)


def measured(table: pd.DataFrame, claim: str, value: str) -> dict[str, Floats]:
    """Return a value of each pipeline of a claim, by replication."""
    rows = table[table["claim"] == claim].sort_values("replica")
    return {str(name): part[value].to_numpy(dtype=np.float64) for name, part in rows.groupby("pipeline")}


def within(relative: Mapping[str, Floats], margin: float = LOOSE) -> dict[str, Floats]:
    """Return the room of relative distances [R] to either side: above 0 on average when within the margin."""
    return {
        f"{name} {side}": margin - sign * distance_R
        for name, distance_R in relative.items()
        for side, sign in (("above", 1), ("below", -1))
    }


# Checks of their own, both: what is compared with is a closed form of each pipeline, not an arm.
def judged(rooms: Mapping[str, Floats], note: str) -> Evidence:
    """Return the evidence that every room is above 0 on average; the note names the narrowest alone."""
    found = must_exceed(rooms, 0.0, note)
    return replace(found, note=f"{note}; least {found.note.rpartition(' least ')[2]}")


@EXPERIMENT.claim(
    "discard-stale-shortens-responses",
    source="Applied Compute (2026), queue-max against queue-drop",
    kind="statistical",
    statement=(
        "Dropping groups older than one update shortens the trained responses by a fifth or more when "
        "lengths have a heavy tail; dropping the oldest of a full queue changes their mean by less than 2 % "
        "and leaves the mean lag at C M_tail / (u B) + (2 q + u - 1) / (2 u), within 3 %."
    ),
)
def discard_stale(table: pd.DataFrame) -> Evidence:
    """Return the room left by both biases of the mean length, and by a full queue's lag and dropped share."""
    from testbed.pipeline import closed_forms

    name = "discard-stale-shortens-responses"
    bias, dropped = measured(table, name, "length_bias"), measured(table, name, "drop_rate")
    rooms = {"a fifth by age": -bias["by age"] - 0.2, "a tenth dropped": dropped["full queue"] - 0.1}
    rooms |= within({"full queue": bias["full queue"]}, 0.02)
    on_paper = closed_forms.sample_lag(discards()["full queue"])
    rooms |= within({"full queue's lag": measured(table, name, "lag_sample")["full queue"] / on_paper - 1})
    means = " -> ".join(
        f"{measured(table, name, value)['by age'].mean():.0f}"
        for value in ("length_generated", "length_trained")
    )
    by_queue = 100 * bias["full queue"].mean()
    return judged(rooms, f"room to a bound; tokens {means} by age, {by_queue:+.2f} % by a full queue")


@EXPERIMENT.claim(
    "stragglers-make-pipelining-pay",
    source="LlamaRL (2025), arXiv 2505.24034, strict speed-up argument (reconstructed)",
    kind="statistical",
    statement=(
        "With spread-out lengths the same split pipeline, which gains nothing at equal lengths, is at least "
        "10 % faster than synchronous training on the same pool."
    ),
)
def stragglers(table: pd.DataFrame) -> Evidence:
    """Return the evidence about the log speed-up by replication, less log 1.1."""
    found = measured(table, "stragglers-make-pipelining-pay", "period")
    gain_R = np.log(found["whole"] / found["split"])
    return must_exceed(gain_R, np.log(1.1), f"log speed-up ; {np.exp(gain_R.mean()):.2f}-fold")
