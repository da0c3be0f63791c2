"""Milliseconds per cell that a sweep costs beyond its training, against a pool and a file per cell.

Ours: plan, ids, claims, orders, one worker, receipts, Parquet, sha256, flushed files. The training is
replaced by a table of the same size (50 logged rows of 60 metrics per cell), whose making is not counted. The
peer is what one writes first: a process pool that returns the table, then one flushed Parquet file per cell.
The start of the worker is measured apart and not counted: it is paid once per sweep.

    python tests/benchmarks/bench_overhead.py [--cells 1000] [--rounds 3] [--json]
"""

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from testbed.config.run import Run, cell_id, grid
from testbed.execution.packs import plan
from testbed.execution.runner import run_sweep

ROWS = 50
METRICS = 60
LIMIT_MS = 5.0

HERE = Path(__file__).parent
WHOLE = {"tabular": {}, "hf": {"policy": "hf", "model": "m"}}


def instant(runs: tuple[Run, ...], report: Any = None) -> dict[str, Any]:
    """Return a table of the usual size."""
    rng = np.random.default_rng(runs[0].seed)
    table: dict[str, Any] = {
        "cell": np.repeat([cell_id(run) for run in runs], ROWS),
        "step": np.tile(np.arange(ROWS), len(runs)),
    }
    values = rng.random((METRICS, ROWS * len(runs)))
    return table | {f"metric/{index}": values[index] for index in range(METRICS)}


def seconds(action: Callable[[], Any]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def sweep(kind: str, count: int) -> tuple[Run, ...]:
    return grid(Run(**WHOLE[kind]), seed=range(count))  # type: ignore[arg-type]


def ours(kind: str, count: int) -> float:
    """Return ms per cell: a sweep of `count` cells less a sweep of one, less the making of the tables."""
    cells = sweep(kind, count)
    packs = plan(cells)
    making = seconds(lambda: [instant(pack.cells) for pack in packs])
    with tempfile.TemporaryDirectory() as folder:

        def run(name: str, some: tuple[Run, ...]) -> float:
            return seconds(
                lambda: run_sweep(some, f"{folder}/{name}", workers=1, function="bench_overhead:instant")
            )

        start = run("one", cells[:1])
        return 1000 * (run("all", cells) - start - making) / count


def peer(count: int) -> float:
    """Return ms per cell of a spawned pool of one process and a flushed Parquet file per cell."""
    cells = sweep("hf", count)
    making = seconds(lambda: [instant((cell,)) for cell in cells])
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool,
    ):
        pool.submit(instant, cells[:1]).result()

        def run() -> None:
            for index, columns in enumerate(pool.map(instant, [(cell,) for cell in cells])):
                path = f"{folder}/{index}.parquet"
                pq.write_table(pa.table(columns), path)
                descriptor = os.open(path, os.O_RDONLY)
                os.fsync(descriptor)
                os.close(descriptor)

        return 1000 * (seconds(run) - making) / count


def flush() -> float:
    """Return the ms of one small flushed file: what no store of this disk gets below."""
    with tempfile.NamedTemporaryFile() as file:

        def write() -> None:
            for _ in range(50):
                file.write(b"x" * 4096)
                file.flush()
                os.fsync(file.fileno())

        return 1000 * seconds(write) / 50


def main() -> int:
    """Print the figures; return 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sys.path.insert(0, str(HERE))  # workers get this path and import the function by name
    found: dict[str, list[float]] = {"packs of 128": [], "packs of 1": [], "peer": [], "fsync": []}
    for _ in range(options.rounds):
        found["packs of 128"].append(ours("tabular", options.cells))
        found["packs of 1"].append(ours("hf", options.cells))
        found["peer"].append(peer(options.cells))
        found["fsync"].append(flush())
    median = {name: round(statistics.median(values), 3) for name, values in found.items()}
    report = {"ms_per_cell": median, "limit_ms": LIMIT_MS, "cells": options.cells, "rounds": options.rounds}
    if options.json:
        print(json.dumps(report))
    else:
        print(
            f"{options.cells} cells of {ROWS} rows x {METRICS} metrics, "
            f"median of {options.rounds} rounds, ms per cell"
        )
        for name in ("packs of 128", "packs of 1", "peer", "fsync"):
            print(f"  {name:<14}{median[name]:8.3f}")
        print(f"  {'limit':<14}{LIMIT_MS:8.3f}  (packs of 128: the cells of a tabular sweep)")
    return int(median["packs of 128"] > LIMIT_MS)


if __name__ == "__main__":
    sys.exit(main())
