"""Simulate designs: replications in parallel, with results that do not depend on the number of threads."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.arrays import Floats
from testbed.errors import UserError
from testbed.pipeline.design import Design, check
from testbed.pipeline.parallel import run_many, run_traced
from testbed.pipeline.records import LAGS, STATE, SUMS, TRACE_COLUMNS, rules

BATCHES = 200
"""Batches measured per replication."""


@dataclass(frozen=True)
class Report:
    """Steady-state results of a design, per replication R.

    value_R: by name, see VALUES. token_K, sample_K, group_K: shares of the lags 0, 1, … of trained tokens,
    samples and groups over all replications; the last bin holds all larger ones. batches: measured per
    replication.
    """

    design: Design
    value_R: Mapping[str, Floats]
    token_K: Floats
    sample_K: Floats
    group_K: Floats
    batches: int

    def mean(self, name: str) -> float:
        """Return the mean over replications."""
        return float(self.value_R[name].mean())

    def stderr(self, name: str) -> float:
        """Return the standard error of that mean; NaN with one replication."""
        value_R = self.value_R[name]
        return float(value_R.std(ddof=1) / math.sqrt(value_R.size)) if value_R.size > 1 else math.nan

    def row(self) -> dict[str, float]:
        """Return all means by name."""
        return {name: self.mean(name) for name in self.value_R}


VALUES = {
    "period": "seconds per batch",
    "samples_per_s": "trained responses per second",
    "tokens_per_s": "trained tokens per second",
    "lag_sample": "updates between a response's first token and its training, mean over responses",
    "lag_token": "updates between a token and its training, mean over tokens",
    "lag_group": "updates between a group's first start and its training, mean over groups",
    "lag_largest": "largest lag_sample seen",
    "trainer_busy": "share of time in which the trainer trains",
    "slots_busy": "share of slot-seconds in which a slot decodes",
    "drop_rate": "dropped / (dropped + trained) responses",
    "length_trained": "mean tokens of trained responses",
    "length_generated": "mean tokens of finished responses",
    "length_bias": "length_trained / length_generated - 1",
    "most_ahead": "largest accepted + running - (v + 1) batch, responses",
    "simulated": "responses started in all, warm-up included",
}
"""Fields of a Report, with units."""


def simulate(
    designs: Sequence[Design], *, replicas: int = 4, batches: int = BATCHES, seed: int = 0
) -> list[Report]:
    """Return one report per design; all designs share the same `replicas` streams of random numbers.

    Each design's warm-up is excluded (see `warm_up`). Raises UserError for an impossible design, or one that
    stalls.
    """
    for design in designs:
        check(design)
    if replicas < 1 or batches < 1:
        raise UserError(f"replicas={replicas}, batches={batches}: expected at least 1 of each.")
    record_K, table_K = rules(list(designs))
    jobs = len(designs) * replicas
    sums_X, histogram_X3K = np.zeros(jobs, SUMS), np.zeros((jobs, 3, LAGS))
    warm_K = np.array([warm_up(design) for design in designs], dtype=np.int64)
    run_many(
        record_K,
        table_K,
        keys(seed, replicas),
        np.zeros(jobs, STATE),
        sums_X,
        histogram_X3K,
        np.stack([warm_K, warm_K + batches], axis=1),
    )
    found = []
    for d, design in enumerate(designs):
        part = slice(d * replicas, (d + 1) * replicas)
        found.append(_report(design, sums_X[part], histogram_X3K[part], batches))
    return found


def simulate_one(design: Design, **how: Any) -> Report:
    """Simulate one pipeline of generation and training.

    Args:
        design: the pipeline.
        how: replications, batches and seed, as in `simulate`.

    Returns:
        A Report: throughput, lags, idle shares and drops, each with a standard error.
    """
    return simulate([design], **how)[0]


def trace_rows(design: Design, batches: int, seed: int = 0) -> tuple[NDArray[np.int64], Floats, Report]:
    """Return one row per trained sample from the very first batch on, their times, and the report.

    Columns: group, member, length, version_start, version_end, version_trained, batch. Times: seconds until
    the trainer took the sample.
    """
    check(design)
    record_K, table_K = rules([design])
    trace_BK = np.zeros((batches * design.batch, TRACE_COLUMNS), np.int64)
    time_B = np.zeros(len(trace_BK))
    sums_X, histogram_X3K = np.zeros(1, SUMS), np.zeros((1, 3, LAGS))
    key = keys(seed, 1)[0]
    run_traced(
        record_K, table_K, key, np.zeros(1, STATE), sums_X, histogram_X3K[0], batches, trace_BK, time_B
    )
    return trace_BK, time_B, _report(design, sums_X, histogram_X3K, batches)


def keys(seed: int, replicas: int) -> NDArray[np.uint64]:
    """Return one 64-bit key per replication; more replications leave the first ones as they are."""
    return np.random.SeedSequence(seed).generate_state(replicas, np.uint64).astype(np.uint64)


def warm_up(design: Design) -> int:
    """Return the number of warm-up batches: afterwards all samples from the empty start are trained."""
    return 10 + math.ceil(2 * design.queue) + math.ceil(8 * design.slots / design.batch) + 2 * design.eta


def _report(design: Design, sums_R: Any, histogram_R3K: Floats, batches: int) -> Report:
    if (sums_R["stuck"] > 1).any():
        raise RuntimeError(f"More groups are open than a pipeline can have: {design}.")
    if sums_R["stuck"].any():
        raise UserError(
            f"The pipeline stops: nothing runs and the trainer waits for {design.batch // design.pieces} "
            f"responses (queue={design.queue:g}, admission={design.admission}, max_age={design.max_age})."
        )
    s = sums_R
    dropped = s["dropped_samples"]
    finished = np.where(s["finished_samples"], s["finished_samples"], np.nan)  # none: no mean length
    trained, generated = s["tokens"] / s["samples"], s["finished_tokens"] / finished
    value_R = {
        "period": s["seconds"] / batches,
        "samples_per_s": s["samples"] / s["seconds"],
        "tokens_per_s": s["tokens"] / s["seconds"],
        "lag_sample": s["sample_lag"] / s["samples"],
        "lag_token": s["token_lag"] / s["tokens"],
        "lag_group": s["group_lag"] / s["groups"],
        "lag_largest": s["most_lag"],
        "trainer_busy": s["busy"] / s["seconds"],
        "slots_busy": s["slot_seconds"] / (design.slots * s["seconds"]),
        "drop_rate": dropped / (dropped + s["samples"]),
        "length_trained": trained,
        "length_generated": generated,
        "length_bias": trained / generated - 1,
        "most_ahead": s["most_ahead"],
        "simulated": s["simulated"],
    }
    share_3K = histogram_R3K.sum(axis=0)
    share_3K = share_3K / share_3K.sum(axis=1, keepdims=True)
    return Report(design, value_R, share_3K[0], share_3K[1], share_3K[2], batches)
