"""Claims about asynchronous pipelines, decided by event simulation against closed forms.

What depends on the lengths that were drawn is statistical: judged over independent replications, which the
table pipeline-replications holds, with a margin, and after p is adjusted. What holds on every path, or
where nothing is random, is exact.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from analysis.experiments.pipelines import pipeline_replications as replicated
from analysis.experiments.pipelines.pipeline_replications import BARRIER, base
from analysis.lab import Evidence, Experiment, Part, exact

if TYPE_CHECKING:
    from testbed.pipeline.design import Design
    from testbed.pipeline.simulate import Report

EXPERIMENT = Experiment(
    "pipeline",
    question="What do asynchronous pipelines gain in speed, and what lag does that cost?",
    source="papers of the systems, with each claim",
    systems={
        "LlamaRL": Part(
            "whether splitting is strictly faster, at equal lengths; at scale: see gains-at-scale",
            claims=("pipelining-alone-gains-nothing",),
        ),
        "Periodic Asynchrony": Part(
            "that its data are on-policy, and a bound on the speed-up; twice: see periodic-speed",
            claims=("periodic-asynchrony-is-on-policy",),
        ),
        "RAPID": Part(
            "the time that is saved, in a cost model derived here; accuracy: see rapid-updates",
            claims=("rapid-saves-the-shared-part-of-decoding",),
        ),
        "Jet-RL": Part(
            "whether its three speed-ups can belong to one run; none of them is measured",
            claims=("jet-rl-gains-are-not-simultaneous",),
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
    "pipelining-alone-gains-nothing",
    source="LlamaRL (2025), arXiv 2505.24034, strict speed-up argument (reconstructed)",
    kind="identity",
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


@EXPERIMENT.claim(
    "rapid-saves-the-shared-part-of-decoding",
    source="RAPID: infer in large batches, then several off-policy steps; cost model derived here",
    kind="identity",
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


@EXPERIMENT.claim(
    "jet-rl-gains-are-not-simultaneous",
    source="Jet-RL (2026), arXiv 2601.14243, abstract; Amdahl's law",
    kind="identity",
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
