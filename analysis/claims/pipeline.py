"""Claims about asynchronous pipelines, decided by event simulation against closed forms.

What depends on the lengths that were drawn is statistical: judged over independent replications, which the
table pipeline-replications holds, with a margin, and within Holm's correction. What holds on every path, or
where nothing is random, is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis import pipeline_replications as replicated
from analysis.claims.base import Evidence, claim, everywhere, exact, mean_above_zero
from analysis.pipeline_replications import BARRIER, base
from envs.arrays import Floats

if TYPE_CHECKING:
    from testbed.pipeline.design import Design
    from testbed.pipeline.simulate import Report


LOOSE = 0.03
"""Largest relative distance from a closed form."""


def run(design: Design, batches: int = 500) -> Report:
    """Return four replications."""
    from testbed.pipeline.simulate import simulate_one

    return simulate_one(design, replicas=4, batches=batches)


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


def judged(rooms: Mapping[str, Floats], note: str) -> Evidence:
    """Return the evidence that every room is above 0 on average; the note names the narrowest alone."""
    found = everywhere(rooms, note)
    return replace(found, note=f"{note}; worst: {found.note.rpartition('; worst: ')[2]}")


def missed(value: float, least: float) -> float:
    """Return 0 when value >= least, else 1."""
    return 0.0 if value >= least else 1.0


@claim(
    "pipeline-periods",
    source="LlamaRL (2025), verl's one-step-off recipe; the straggler terms are order statistics",
    kind="statistical",
    table=replicated.NAME,
    statement=(
        "Synchronous training takes E[max of B] tau + T_tr + T_sync per batch, one-step-off the larger of "
        "both sides + T_sync when one side always wins, streaming max(B E[L] tau / C, T_tr): within 3 %."
    ),
)
def periods(table: pd.DataFrame) -> Evidence:
    """Return the room left by relative distances of simulated periods from the closed forms."""
    from testbed.pipeline import closed_forms

    forms = {
        "synchronous": closed_forms.synchronous_period,
        "one step off": closed_forms.one_step_off_period,
        "streaming": closed_forms.streaming_period,
    }
    found, designs = measured(table, "pipeline-periods", "period"), replicated.periods()
    apart = {name: found[name] / forms[name.partition(",")[0]](designs[name]) - 1 for name in designs}
    certain = [name for name, distance_R in apart.items() if np.abs(distance_R).max() < 1e-9]
    note = "3 % less the mean relative distance of a period, either side"
    note += f"; equal in every replication: {'; '.join(certain)}" if certain else ""
    return judged(within({name: apart[name] for name in apart if name not in certain}), note)


@claim(
    "pipeline-mean-lag",
    source="Applied Compute (2026), staleness of asynchronous training",
    kind="statistical",
    table=replicated.NAME,
    statement=(
        "The mean lag from start to training is C M_tail / B + u for u < 1, and with drop-oldest "
        "C M_tail / (u B) + (2 q + u - 1) / (2 u) for 1 < u <= 2: within 3 %. At u = 3, q = 4 it is "
        "4 to 8 % off."
    ),
)
def mean_lag(table: pd.DataFrame) -> Evidence:
    """Return the room left by relative distances within the range, and by that beyond it to both its ends."""
    from testbed.pipeline import closed_forms

    found, designs = measured(table, "pipeline-mean-lag", "lag_sample"), replicated.mean_lags()
    apart = {name: found[name] / closed_forms.sample_lag(designs[name]) - 1 for name in designs}
    off_R = np.abs(apart.pop("beyond"))
    rooms = within(apart) | {"4 % beyond": off_R - 0.04, "8 % beyond": 0.08 - off_R}
    note = f"3 % less the mean relative distance of a lag, either side; {off_R.mean():.3f} at u = 3, q = 4"
    return judged(rooms, note)


@claim(
    "in-flight-saves-half-a-response",
    source="PipelineRL (2025); the formula is derived here",
    kind="statistical",
    table=replicated.NAME,
    statement=(
        "Tokens that carry the version that made them are (C / B) E[L M_S] / E[L]^2 + u updates old for "
        "u < 1, and (C / B) E[L^2] / (2 E[L]^2) less with in-flight updates; both and the saving within 3 %."
    ),
)
def in_flight(table: pd.DataFrame) -> Evidence:
    """Return the room left by relative distances of both lags and of their difference, for three laws."""
    from testbed.pipeline import closed_forms

    found = measured(table, "in-flight-saves-half-a-response", "lag_token")
    paper = {name: closed_forms.token_lag(design) for name, design in replicated.in_flight().items()}
    apart = {name: found[name] / lag - 1 for name, lag in paper.items()}
    for law in replicated.LAWS:
        late, soon = f"{law}, late", f"{law}, in flight"
        apart[f"{law}, saved"] = (found[late] - found[soon]) / (paper[late] - paper[soon]) - 1
    return judged(within(apart), "3 % less the mean relative distance of a lag or a saving, either side")


@claim(
    "discard-stale-shortens-responses",
    source="Applied Compute (2026), queue-max against queue-drop",
    kind="statistical",
    table=replicated.NAME,
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
    on_paper = closed_forms.sample_lag(replicated.discards()["full queue"])
    rooms |= within({"full queue's lag": measured(table, name, "lag_sample")["full queue"] / on_paper - 1})
    means = " -> ".join(
        f"{measured(table, name, value)['by age'].mean():.0f}"
        for value in ("length_generated", "length_trained")
    )
    by_queue = 100 * bias["full queue"].mean()
    return judged(rooms, f"room to a bound; tokens {means} by age, {by_queue:+.2f} % by a full queue")


@claim(
    "periodic-asynchrony-is-on-policy",
    source="Periodic Asynchrony (2025), arXiv 2511.18871",
    kind="exact",
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


@claim(
    "pipelining-alone-gains-nothing",
    source="LlamaRL (2025), arXiv 2505.24034, strict speed-up argument (reconstructed)",
    kind="exact",
    statement=(
        "On a fixed pool with equal memory settings, equal lengths and free syncs, the best split pipeline "
        "is exactly as fast as synchronous training (1.00); larger decoding batches make it faster."
    ),
)
def speed_up_identity() -> Evidence:
    """Return |speed-up - 1| at the best split, and whether larger decoding gains 10 %; nothing is random."""
    both = replicated.pools()
    more = replace(both["split"], slots=768, train_time=24.8)
    period = run(both["whole"], 120).mean("period")
    speeds = [period / run(split, 120).mean("period") for split in (both["split"], more)]
    note = "|speed-up - 1|; speed-ups: " + ", ".join(f"{each:.3f}" for each in speeds)
    return exact([abs(speeds[0] - 1), missed(speeds[1], 1.1)], 1e-3, note)


@claim(
    "stragglers-make-pipelining-pay",
    source="LlamaRL (2025), arXiv 2505.24034, strict speed-up argument (reconstructed)",
    kind="statistical",
    table=replicated.NAME,
    statement=(
        "With spread-out lengths the same split pipeline, which gains nothing at equal lengths, is at least "
        "10 % faster than synchronous training on the same pool."
    ),
)
def stragglers(table: pd.DataFrame) -> Evidence:
    """Return the evidence about the log speed-up by replication, less log 1.1."""
    found = measured(table, "stragglers-make-pipelining-pay", "period")
    gain_R = np.log(found["whole"] / found["split"])
    return mean_above_zero(
        gain_R - np.log(1.1), f"log speed-up less log 1.1; {np.exp(gain_R.mean()):.2f}-fold"
    )


@claim(
    "rapid-saves-the-shared-part-of-decoding",
    source="RAPID: infer in large batches, then several off-policy steps; cost model derived here",
    kind="exact",
    statement=(
        "Generating N batches at once for N updates saves (tau_0 L)(1 - 1/N) seconds per update at equal "
        "lengths and costs a mean lag of (N - 1) / 2: the part tau_1 of decoding is not saved."
    ),
)
def rapid() -> Evidence:
    """Return relative distances of period and lag from the cost model for N = 1, 2, 4, 8."""
    from testbed.pipeline import closed_forms

    one = base(**BARRIER, length="fixed", tau_1=1e-3, pools="colocated", batch=64, slots=64)
    alone, gaps = run(one, 20).mean("period"), []
    for n in (1, 2, 4, 8):
        many = replace(one, batch=64 * n, slots=64 * n, updates=n, train_time=15.0 * n)
        found = run(many, 20)
        saved = one.tau_0 * one.length_mean * (1 - 1 / n)
        gaps.append(abs(alone - found.mean("period") / n - saved) / alone)
        gaps.append(abs(closed_forms.rapid_saving(one, n) - saved) / alone)
        gaps.append(abs(found.mean("lag_sample") - (n - 1) / 2))
    return exact(gaps, 1e-9, "largest distance of a saving, relative to the period, or of a mean lag")


@claim(
    "jet-rl-gains-are-not-simultaneous",
    source="Jet-RL (2026), arXiv 2601.14243, abstract; Amdahl's law",
    kind="exact",
    statement=(
        "Gains of 33 % in rollout and 41 % in training give at least 33 % end to end if a step is nothing "
        "but these two, whatever their shares; the reported 16 % is not their combination in such a run."
    ),
)
def amdahl() -> Evidence:
    """Return by how much some share of rollout could explain 1.16, and distances of simulated speed-ups."""
    from testbed.pipeline import closed_forms

    speeds = [closed_forms.amdahl(k / 100, 1.33, 1.41) for k in range(101)]
    gaps = [max(0.0, 1.33 - min(speeds)), missed(min(speeds), 1.16 + 0.1)]
    slow = base(**BARRIER, length="fixed", pools="colocated", length_mean=700.0, train_time=6.0)
    fast = replace(slow, tau_0=slow.tau_0 / 1.33, train_time=slow.train_time / 1.41)
    simulated = run(slow, 20).mean("period") / run(fast, 20).mean("period")
    gaps.append(abs(simulated - closed_forms.amdahl(0.7, 1.33, 1.41)))
    return exact(gaps, 1e-9, f"violations; speed-up {simulated:.3f} with 70 % rollout")


@claim(
    "capacity-bounds-submissions-not-lag",
    source="AReaL (2025), arXiv 2505.24298, staleness manager",
    kind="exact",
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
