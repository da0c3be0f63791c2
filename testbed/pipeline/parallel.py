"""Compiled entry points: many pipelines side by side, or one with its trace.

Only these two cache their machine code on disk. Numba invalidates a cached function only when its file
changes, so both close over a checksum of every file compiled into them: a change in any recompiles both.
"""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from envs import kernels
from testbed.pipeline import heap, kernel, pipeline_draws, records
from testbed.pipeline.kernel import run_one
from testbed.pipeline.records import SWAPS, TRACE_COLUMNS, Out, Store


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
        np.empty(p.slots),
        np.empty(p.slots, np.int64),
        np.empty(tools),
        np.empty(tools, np.int64),
        np.empty(groups, np.int64),
        np.empty(groups, np.int64),
        np.empty(groups, np.int64),
        np.empty(groups, np.int64),
        np.empty(groups),
        np.empty(groups, np.int64),
        np.empty(samples, np.int64),
        np.empty(samples, np.int64),
        np.empty(samples, np.int64),
        np.empty(samples),
        np.empty(samples),
        np.empty(samples),
        np.empty(SWAPS),
        np.empty(SWAPS, np.int64),
    )


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
