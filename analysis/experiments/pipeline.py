"""Claims about asynchronous pipelines, decided by event simulation against closed forms.

Seeds are fixed. A gap to a closed form counts with 4 standard errors (of 4 replications) added: with known
errors, a claim "within 3 %" whose true gap is larger would be supported with probability below 3.2e-5 per
relation; with errors from 4 replications below 0.015. Identities without randomness have no such chance.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from analysis.claims import Evidence, exact
from analysis.experiment import Experiment

if TYPE_CHECKING:
    from testbed.pipeline.design import Design
    from testbed.pipeline.simulate import Report

EXPERIMENT = Experiment(
    "pipeline",
    question="What do asynchronous pipelines gain in speed, and what lag does that cost?",
    source="papers of the systems, with each claim",
)

LOOSE = 0.03
"""Largest relative distance from a closed form."""
ERRORS = 4.0
"""Standard errors added to it."""
BARRIER = {"admission": "capacity", "barrier": True, "queue_rule": "block"}


def base(**fields: Any) -> Design:
    """Return 240 slots, batches of 240 = 30 groups of 8 that take 20 s to generate, some fields replaced."""
    from testbed.pipeline.design import Design

    return replace(Design(slots=240, batch=240, train_time=15.0, queue_rule="drop-oldest"), **fields)


def run(design: Design, batches: int = 500) -> Report:
    """Return four replications."""
    from testbed.pipeline.simulate import simulate_one

    return simulate_one(design, replicas=4, batches=batches)


def distance(found: Report, name: str, expected: float) -> float:
    """Return |mean / expected - 1| with the standard errors added."""
    return abs(found.mean(name) / expected - 1) + ERRORS * found.stderr(name) / expected


def missed(value: float, least: float) -> float:
    """Return 0 when value >= least, else 1."""
    return 0.0 if value >= least else 1.0


@EXPERIMENT.claim(
    "pipeline-periods",
    source="LlamaRL (2025), verl's one-step-off recipe; the straggler terms are order statistics",
    kind="exact",
    statement=(
        "Synchronous training takes E[max of B] tau + T_tr + T_sync per batch, one-step-off the larger of "
        "both sides + T_sync when one side always wins, streaming max(B E[L] tau / C, T_tr): within 3 %."
    ),
)
def periods() -> Evidence:
    """Return relative distances of simulated periods from the closed forms, standard errors added."""
    from testbed.pipeline import closed_forms

    gaps = []
    whole = base(**BARRIER, tau_1=1e-4, sync_time=2.0)
    gaps.append(distance(run(whole), "period", closed_forms.synchronous_period(whole)))
    for train_time in (5.0, 160.0):
        ahead = replace(whole, eta=1, train_time=train_time)
        gaps.append(distance(run(ahead), "period", closed_forms.one_step_off_period(ahead)))
    for train_time in (5.0, 15.0, 30.0):
        stream = base(train_time=train_time)
        gaps.append(distance(run(stream), "period", closed_forms.streaming_period(stream)))
    return exact(gaps, LOOSE, "largest relative distance of a period, 4 standard errors added")


@EXPERIMENT.claim(
    "pipeline-mean-lag",
    source="Applied Compute (2026), staleness of asynchronous training",
    kind="exact",
    statement=(
        "The mean lag from start to training is C M_tail / B + u for u < 1, and with drop-oldest "
        "C M_tail / (u B) + (2 q + u - 1) / (2 u) for 1 < u <= 2: within 3 %. At u = 3, q = 4 it is "
        "4 to 8 % off."
    ),
)
def mean_lag() -> Evidence:
    """Return relative distances within the range, and whether the formula is as loose beyond it as stated."""
    from testbed.pipeline import closed_forms

    inside = [base(slots=c, train_time=t * 240 / c, queue=4) for c in (120, 240, 480) for t in (5.0, 15.0)]
    inside += [base(train_time=20 * u) for u in (1.1, 1.5, 2.0)]
    gaps = [distance(run(each), "lag_sample", closed_forms.sample_lag(each)) for each in inside]
    beyond = base(train_time=60.0, queue=4)
    off = abs(run(beyond).mean("lag_sample") / closed_forms.sample_lag(beyond) - 1)
    gaps += [missed(off, 0.04), missed(0.08, off)]
    return exact(
        gaps, LOOSE, f"largest relative distance, 4 standard errors added; {off:.3f} at u = 3, q = 4"
    )


@EXPERIMENT.claim(
    "in-flight-saves-half-a-response",
    source="PipelineRL (2025); the formula is derived here",
    kind="exact",
    statement=(
        "Tokens that carry the version that made them are (C / B) E[L M_S] / E[L]^2 + u updates old for "
        "u < 1, and (C / B) E[L^2] / (2 E[L]^2) less with in-flight updates; both and the saving within 3 %."
    ),
)
def in_flight() -> Evidence:
    """Return relative distances of both lags and of their difference, for three laws of lengths."""
    from testbed.pipeline import closed_forms

    gaps = []
    for fields in ({"group": 1, "sigma": 0.5}, {"group": 4, "sigma": 0.35}, {"group": 8, "correlation": 0.5}):
        # One generator stream: both runs meet the same lengths, so their difference has a small error.
        late = base(**fields, train_time=12.0, queue=4)
        soon = replace(late, in_flight=True)
        found = [run(each, 1000) for each in (late, soon)]
        paper = [closed_forms.token_lag(each) for each in (late, soon)]
        gaps += [distance(each, "lag_token", lag) for each, lag in zip(found, paper, strict=True)]
        saved_R = found[0].value_R["lag_token"] - found[1].value_R["lag_token"]
        error = float(saved_R.std(ddof=1)) / 2
        gaps.append(
            (abs(float(saved_R.mean()) - (paper[0] - paper[1])) + ERRORS * error) / (paper[0] - paper[1])
        )
    return exact(gaps, LOOSE, "largest relative distance of a lag or a saving, 4 standard errors added")


@EXPERIMENT.claim(
    "discard-stale-shortens-responses",
    source="Applied Compute (2026), queue-max against queue-drop",
    kind="exact",
    statement=(
        "Dropping groups older than one update shortens the trained responses by a fifth or more when "
        "lengths have a heavy tail; dropping the oldest of a full queue changes their mean by less than 2 %."
    ),
)
def discard_stale() -> Evidence:
    """Return whether both hold with 4 standard errors to spare; mean lengths are in the note."""
    heavy = {"sigma": 0.9, "length_mean": 1354.0, "train_time": 25.0}
    old = run(base(**heavy, max_age=1, queue_rule="block"))
    full = run(base(**heavy | {"train_time": 40.0}))
    bias = old.mean("length_bias") + ERRORS * old.stderr("length_bias")
    drift = abs(full.mean("length_bias")) + ERRORS * full.stderr("length_bias")
    gaps = [missed(-bias, 0.2), missed(0.02, drift), missed(full.mean("drop_rate"), 0.1)]
    means = " -> ".join(f"{old.mean(name):.0f}" for name in ("length_generated", "length_trained"))
    return exact(gaps, 0.0, f"tokens {means} by age, {100 * full.mean('length_bias'):+.2f} % by a full queue")


@EXPERIMENT.claim(
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
        speed = plain.mean("period") / streamed.mean("period")
        gaps += [streamed.mean("lag_largest"), missed(speed, 1.05), missed(2.0 - 1e-9, speed)]
    return exact(gaps, 0.0, "largest lag; speed-ups outside (1.05, 2) count 1")


@EXPERIMENT.claim(
    "pipelining-alone-gains-nothing",
    source="LlamaRL (2025), arXiv 2505.24034, strict speed-up argument (reconstructed)",
    kind="exact",
    statement=(
        "On a fixed pool with equal memory settings, equal lengths and free syncs, the best split pipeline "
        "is exactly as fast as synchronous training (1.00); spread-out lengths or larger decoding batches "
        "make it faster."
    ),
)
def speed_up_identity() -> Evidence:
    """Return |speed-up - 1| at the best split, and whether stragglers and larger decoding gain 10 %."""
    lengths = {
        "length": "fixed",
        "tau_1": 3e-4,
        "group": 8,
        "batch": 512,
        "queue": 4.0,
        "queue_rule": "block",
    }
    whole = base(**lengths | BARRIER, slots=512, engines=32, pools="colocated", train_time=24.8 / 3)
    split = base(**lengths, slots=384, engines=24, train_time=24.8 / 3 * 32 / 8)
    speeds = [run(whole, 120).mean("period") / run(split, 120).mean("period")]
    changes: tuple[dict[str, Any], ...] = ({"length": "lognormal"}, {"slots": 768})
    for fields in changes:
        slow = run(replace(whole, **{k: v for k, v in fields.items() if k == "length"}), 120)
        speeds.append(
            slow.mean("period") / run(replace(split, **fields, train_time=24.8), 120).mean("period")
        )
    gaps = [abs(speeds[0] - 1), missed(speeds[1], 1.1), missed(speeds[2], 1.1)]
    return exact(gaps, 1e-3, "|speed-up - 1|; speed-ups: " + ", ".join(f"{each:.3f}" for each in speeds))


@EXPERIMENT.claim(
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


@EXPERIMENT.claim(
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


@EXPERIMENT.claim(
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
