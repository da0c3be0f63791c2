"""Simulate designs: replications in parallel, with results that do not depend on the number of threads.

Only these two cache their machine code on disk. Numba invalidates a cached function only when its file
changes, so both close over a checksum of every file compiled into them: a change in any recompiles both.
"""

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from envs import kernels
from envs.arrays import Floats
from testbed.errors import UserError
from testbed.pipeline import heap, kernel, pipeline_draws, records
from testbed.pipeline.design import Design, check
from testbed.pipeline.kernel import run_one
from testbed.pipeline.records import LAGS, STATE, SUMS, SWAPS, TRACE_COLUMNS, Out, Store, rules


def _checksum() -> int:
    files = (str(module.__file__) for module in (kernels, pipeline_draws, heap, kernel, records))
    return zlib.crc32(b"".join(Path(file).read_bytes() for file in files))


@njit
def _store(p: Any) -> Store:
    # Every incomplete group has a running member, except the one being started; all may overflow the queue.
    groups = p.slots + p.queue_groups + p.batch // p.group + 2
    samples = groups * p.group
    tools = p.slots if p.tool_time > 0 else 1
    return Store(
        np.empty(p.slots), np.empty(p.slots, np.int64), np.empty(tools), np.empty(tools, np.int64),
        np.empty(groups, np.int64), np.empty(groups, np.int64), np.empty(groups, np.int64),
        np.empty(groups, np.int64), np.empty(groups), np.empty(groups, np.int64),
        np.empty(samples, np.int64), np.empty(samples, np.int64), np.empty(samples, np.int64),
        np.empty(samples), np.empty(samples), np.empty(samples), np.empty(SWAPS), np.empty(SWAPS, np.int64),
    )  # fmt: skip


def _compiled(checksum: int) -> tuple[Callable[..., None], Callable[..., None]]:
    @njit(cache=True, parallel=True)
    def run_many(
        rules_K: Any,
        table_K: NDArray[np.int64],
        key_R: NDArray[np.uint64],
        state_X: Any,
        sums_X: Any,
        histogram_X3K: NDArray[np.float64],
        batches_K2: NDArray[np.int64],
    ) -> None:
        """Run every design under every key; job d * R + r writes row d * R + r of the sums and histograms."""
        no_trace, no_time = np.empty((0, TRACE_COLUMNS), np.int64), np.empty(0)
        replicas = key_R.shape[0] if checksum >= 0 else 0
        for j in prange(rules_K.shape[0] * replicas):
            p = rules_K[j // replicas]
            h_3K = histogram_X3K[j]
            out = Out(sums_X[j], h_3K[0], h_3K[1], h_3K[2], no_trace, no_time)
            warm, last = batches_K2[j // replicas, 0], batches_K2[j // replicas, 1]
            run_one(p, state_X[j], _store(p), out, table_K, key_R[j % replicas], warm, last)

    @njit(cache=True)
    def run_traced(
        rules_K: Any,
        table_K: NDArray[np.int64],
        key: int,
        state_X: Any,
        sums_X: Any,
        histogram_3K: NDArray[np.float64],
        batches: int,
        trace_BK: NDArray[np.int64],
        time_B: NDArray[np.float64],
    ) -> None:
        """Run one design from the start; see simulate.trace_rows for the columns."""
        out = Out(sums_X[0], histogram_3K[0], histogram_3K[1], histogram_3K[2], trace_BK, time_B)
        if checksum >= 0:
            run_one(rules_K[0], state_X[0], _store(rules_K[0]), out, table_K, key, 0, batches)

    return run_many, run_traced


run_many, run_traced = _compiled(_checksum())


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
        how: replicas, batches and seed, as in `simulate`.

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
    state_1 = np.zeros(1, STATE)
    run_traced(record_K, table_K, key, state_1, sums_X, histogram_X3K[0], batches, trace_BK, time_B)
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
            f"responses (queue={design.queue:g}, admission={design.admission}, max_age={design.max_age}). "
            "Raise queue or max_age, or lower batch."
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
