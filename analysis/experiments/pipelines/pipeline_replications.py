"""Simulated pipelines against closed forms of their speed and lag.

Claims that depend on drawn lengths are statistical: judged over replications, streams of random numbers that
all pipelines share, so that rows of one replication form pairs. Claims that hold on every path, or where
nothing is random, are exact. The last experiment measures the speed of micro-batches that are trained as they
arrive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.judging.replication import Frame, Groups, Rows, Seeds, columns, of_seeds
from analysis.lab import Evidence, Experiment, Part, Plot, exact
from analysis.tables.committed import Table
from envs.arrays import Floats

if TYPE_CHECKING:
    from testbed.pipeline.design import Design
    from testbed.pipeline.simulate import Report


REPLICAS = 8
FRESH = range(REPLICAS, 24)
"""Replications of a second run, added after closed forms had held on the first eight."""
VALUES = (
    "period", "lag_sample", "lag_token", "length_generated", "length_trained", "length_bias", "drop_rate",
)  # fmt: skip
COLUMNS = ("claim", "pipeline", "replica", *VALUES)
LOOSE = 0.03
"""Largest relative distance from a closed form."""
BARRIER = {"admission": "capacity", "barrier": True, "queue_rule": "block"}


def base(**fields: Any) -> Design:
    """Return 240 slots, batches of 240 = 30 groups of 8 that take 20 s, with some fields replaced."""
    from testbed.pipeline.design import Design

    return replace(Design(slots=240, batch=240, train_time=15.0, queue_rule="drop-oldest"), **fields)


def discards() -> dict[str, Design]:
    """A heavy tail of lengths: groups dropped by age, and the oldest of a full queue dropped."""
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


def replications(claim: str, replicas: int = REPLICAS) -> Frame:
    """Return a row per pipeline and replication of the claim; more replications keep the first ones."""
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
    return Table.of("pipeline-replications", frame, {"replicas": FRESH.stop, "seed": 0})


REPLICATED = Experiment(
    "pipeline-replications",
    question="Do closed forms of speed and lag hold for random pipelines, replication by replication?",
    source="papers of the systems, with each claim", compute=table, fresh=FRESH,
    keys=("claim", "pipeline", "replica"), metrics=VALUES,
    margins={"relative distance from a closed form": LOOSE},
    systems={
        "LlamaRL": Part(
            "whether splitting is strictly faster, at spread-out lengths; at scale: see gains-at-scale",
            claims=("stragglers-make-pipelining-pay",),
        )
    },
)  # fmt: skip


def measured(table: Frame, claim: str, value: str) -> Groups:
    """Return a value of each pipeline of a claim, by replication."""
    rows = table[table["claim"] == claim].sort_values("replica")
    return {str(name): part[value].to_numpy(dtype=np.float64) for name, part in rows.groupby("pipeline")}


def within(relative: Mapping[str, Floats], margin: float = LOOSE) -> Groups:
    """Return the distance to either margin of relative distances [R]: positive on average means within."""
    return {
        f"{name} {side}": margin - sign * distance_R
        for name, distance_R in relative.items()
        for side, sign in (("above", 1), ("below", -1))
    }


def room_to_a_bound(table: Frame) -> Groups:
    """Return the distance to the margin of both length biases, and a full queue's lag and dropped share."""
    from testbed.pipeline import closed_forms

    name = "discard-stale-shortens-responses"
    bias, dropped = measured(table, name, "length_bias"), measured(table, name, "drop_rate")
    rooms = {"a fifth by age": -bias["by age"] - 0.2, "a tenth dropped": dropped["full queue"] - 0.1}
    rooms |= within({"full queue": bias["full queue"]}, 0.02)
    on_paper = closed_forms.sample_lag(discards()["full queue"])
    rooms |= within({"full queue's lag": measured(table, name, "lag_sample")["full queue"] / on_paper - 1})
    return rooms


REPLICATED.claim(
    "discard-stale-shortens-responses",
    "Dropping groups older than one update shortens the trained responses by a fifth or more when "
    "lengths have a heavy tail; dropping the oldest of a full queue changes their mean by less than 2 % "
    "and leaves the mean lag at C M_tail / (u B) + (2 q + u - 1) / (2 u), within 3 %.",
    source="Applied Compute (2026), queue-max against queue-drop",
    kind="statistical",
).compare(room_to_a_bound)


def log_speed_up(table: Frame) -> Floats:
    """Return how much faster the split pipeline is, by replication."""
    found = measured(table, "stragglers-make-pipelining-pay", "period")
    return np.log(found["whole"] / found["split"])


REPLICATED.claim(
    "stragglers-make-pipelining-pay",
    "With spread-out lengths the same split pipeline, which gains nothing at equal lengths, is at least "
    "10 % faster than synchronous training on the same pool.",
    source="LlamaRL (2025), arXiv 2505.24034, strict speed-up argument (reconstructed)",
    kind="statistical",
).compare(log_speed_up, by=float(np.log(1.1)))


FORMULAS = Experiment(
    "pipeline",
    question="What do asynchronous pipelines gain in speed, and what lag does that cost?",
    source="papers of the systems, with each claim",
    systems={
        "Periodic Asynchrony": Part(
            "that its data are on-policy, and a bound on the speed-up; for twice the speed see "
            "periodic-speed",
            claims=("periodic-asynchrony-is-on-policy",),
        )
    },
)


def run(design: Design, batches: int = 500) -> Report:
    """Return four replications."""
    from testbed.pipeline.simulate import simulate_one

    return simulate_one(design, replicas=4, batches=batches)


def missed(value: float, least: float) -> float:
    """Return 0 when value >= least, else 1."""
    return 0.0 if value >= least else 1.0


@FORMULAS.claim(
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


@FORMULAS.claim(
    "capacity-bounds-submissions-not-lag",
    source="AReaL (2025), arXiv 2505.24298, staleness manager",
    kind="enumerated",
    statement=(
        "Under AReaL's capacity rule accepted + running responses never exceed (eta + v + 1) B, and the "
        "bound is reached; a straggler's lag still exceeds eta, unless the next batch waits for all that run."
    ),
)
def capacity() -> Evidence:
    """Return the distance of the largest excess from eta B, and whether stragglers exceed eta."""
    gaps = []
    for eta in (0, 1, 4):
        design = base(admission="capacity", eta=eta, queue=eta + 1.0, train_time=25.0, sigma=1.0)
        found, waiting = run(design, 200), run(replace(design, barrier=True), 200)
        gaps += [abs(float(x) - eta * design.batch) for x in found.value_R["most_ahead"]]
        gaps.append(max(0.0, waiting.mean("lag_largest") - eta))
        if eta:
            gaps.append(missed(found.mean("lag_largest"), eta + 1.0))
    return exact(gaps, 0.0, "responses beyond the bound, or lags beyond eta")


PERIODIC = "Periodic Asynchrony (2025), arXiv:2511.18871"
SEEDS, BATCHES, PIECES = 8, 60, 30
LOADS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Seconds to train a batch over seconds to generate it, with all of the slots busy."""
SPREADS = (0.0, 0.3, 0.6, 1.0)
"""Standard deviations of the logarithm of a response's length."""
NEAR, APART = 1.8, 0.05
"""Speed-up that counts as nearly twice, and margin of a difference of speed-ups. Set on other seeds."""


def speed_up(seeds: Seeds) -> Rows:
    """Return the speed-up over generating first, and the largest lag, by load and spread of lengths."""
    from testbed.pipeline import closed_forms
    from testbed.pipeline.simulate import simulate

    for spread in SPREADS:
        lengths = {"sigma": spread} if spread else {"length": "fixed"}
        empty = base(slots=12, admission="capacity", eta=0, queue_rule="block", **lengths)
        for load in LOADS:
            whole = replace(empty, train_time=load * closed_forms.generation_time(empty))
            both = [whole, replace(whole, pieces=PIECES)]
            found = [simulate(both, replicas=1, batches=BATCHES, seed=seed) for seed in seeds]
            gain_R = [float(one.value_R["period"][0] / two.value_R["period"][0]) for one, two in found]
            lag_R = [float(two.value_R["lag_largest"][0]) for _, two in found]
            yield columns(seeds, load=load, spread=spread, gain=gain_R, lag=lag_R)


SPEED = Experiment(
    "periodic-speed",
    question="How much faster is an iteration that trains each micro-batch as it arrives?",
    source=PERIODIC,
    differs="event simulation: 240 responses of log-normal length on 12 slots, 30 micro-batches, free syncs; "
    "nothing is trained, and equal updates are taken for equal accuracy",
    compute=of_seeds("periodic-speed", speed_up, SEEDS, {"pieces": PIECES, "batches": BATCHES}),
    keys=("run", "seed", "load", "spread"), metrics=("gain", "lag"),
    margins={"speed-up that counts as nearly twice": NEAR, "difference of speed-ups": APART},
    figure=Plot(
        "final by setting", x="load", y="gain", arm=("spread",),
        x_label="time to train over time to generate", y_label="speed-up over generating first",
        says="Shows how many times faster an iteration is if its 30 micro-batches are trained as they arrive "
        "than if it generates all first, by event simulation of 240 responses on 12 slots; across: time to "
        "train over time to generate; spread: standard deviation of the logarithm of a response's length.",
    ),
    systems={"Periodic Asynchrony": "simulated speed, near 2 only at balance; no accuracy"},
)  # fmt: skip

SPEED.claim(
    "periodic-asynchrony-nearly-doubles-the-speed-at-balance",
    "Simulated with free syncs, where training takes as long as generating and lengths have a spread of 0.3, "
    "it is over 1.8 times as fast; 2 is the most that overlap can give.",
).compare("gain", {"load": 1.0, "spread": 0.3}, by=NEAR, null=1.0)
