"""Pack functions that stand in for training: quick, deterministic, or broken on purpose."""

import ctypes
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from testbed.config.run import Run, cell_id
from testbed.errors import UserError

Columns = dict[str, Any]
Report = Callable[[int, int], None] | None


def train(runs: tuple[Run, ...], report: Report = None) -> Columns:
    """Return three rows per cell whose numbers follow from the cell alone."""
    if report is not None:
        report(runs[0].steps, runs[0].steps)
    steps = np.arange(3)
    draws = [np.random.default_rng([run.seed, run.lag]) for run in runs]
    return {
        "cell": np.repeat([cell_id(run) for run in runs], 3),
        "step": np.tile(steps, len(runs)),
        "lag": np.repeat([run.lag for run in runs], 3),
        "accuracy": np.concatenate([draw.random(3) for draw in draws]),
        "rollout_corr/log_rho_sequence_histogram": [draw.integers(0, 9, 4) for draw in draws for _ in steps],
    }


def half_told(runs: tuple[Run, ...], report: Report = None) -> Columns:
    """Say once that half of the steps are done."""
    if report is not None:
        report(runs[0].steps // 2, runs[0].steps)
    return train(runs)


def slow(runs: tuple[Run, ...], report: Report = None) -> Columns:
    """Take 50 ms per pack."""
    time.sleep(0.05)
    return train(runs, report)


def noted(runs: tuple[Run, ...], report: Report = None) -> Columns:
    """Leave a file per execution in the folder named by the variable TRACES, and take 50 ms."""
    Path(os.environ["TRACES"], f"{runs[0].seed}-{os.getpid()}-{time.monotonic_ns()}").touch()
    return slow(runs, report)


def poison(runs: tuple[Run, ...], report: Report = None) -> Columns:
    """Kill the worker at seed 7."""
    if any(run.seed == 7 for run in runs):
        os.kill(os.getpid(), signal.SIGKILL)
    return train(runs, report)


def crash_once(runs: tuple[Run, ...], report: Report = None) -> Columns:
    """Kill the worker the first time that seed 7 is tried."""
    marker = Path(os.environ["TRACES"], "crashed")
    if any(run.seed == 7 for run in runs) and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return train(runs, report)


def troubled(runs: tuple[Run, ...], report: Report = None) -> Columns:
    """Fail in another way at each of the first seeds."""
    seed = runs[0].seed
    if seed == 0:
        raise ZeroDivisionError("seed 0 divides by zero")
    if seed == 1:
        raise MemoryError("seed 1 asks for too much")
    if seed == 2:
        raise UserError("seed 2 is bad input")
    if seed == 3:
        return {"cell": [], "step": []}
    if seed == 4:
        sys.exit(3)
    return train(runs, report)


def hang(runs: tuple[Run, ...], report: Report = None) -> Columns:
    """Never end at seed 7."""
    if any(run.seed == 7 for run in runs):
        time.sleep(1000)
    return train(runs, report)


def chatty(runs: tuple[Run, ...], report: Report = None) -> Columns:
    """Print to standard output, which must not reach the pipe to the parent."""
    print("hello from the pack", flush=True)
    os.write(1, b"and from below Python\n")
    return train(runs, report)


def patient(runs: tuple[Run, ...], report: Report = None) -> Columns:
    """Note the process, then take 1.5 s."""
    Path(os.environ["TRACES"], f"pid-{os.getpid()}").touch()
    time.sleep(1.5)
    return train(runs, report)


def endless(runs: tuple[Run, ...], report: Report = None) -> Columns:
    """Note the process, then compute for ever without giving up the interpreter lock for long."""
    Path(os.environ["TRACES"], f"pid-{os.getpid()}").touch()
    while True:
        sum(range(1000))


def threads(runs: tuple[Run, ...], report: Report = None) -> Columns:
    """Return the thread limits that were set before the process began."""
    limits = {f"limit/{name}": int(os.environ[name]) for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")}
    columns = train(runs, report)
    return columns | {name: np.full(len(columns["cell"]), value) for name, value in limits.items()}


def segfault(runs: tuple[Run, ...], report: Report = None) -> Columns:
    """Read from address zero at seed 7."""
    if any(run.seed == 7 for run in runs):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        ctypes.string_at(0)
    return train(runs, report)


def vanish(runs: tuple[Run, ...], report: Report = None) -> Columns:
    """End the process, as if all were well, at seed 7."""
    if any(run.seed == 7 for run in runs):
        os._exit(0)
    return train(runs, report)


def half(runs: tuple[Run, ...], report: Report = None) -> Columns:
    """Take 50 ms; fail at odd seeds."""
    if runs[0].seed % 2:
        raise ArithmeticError("odd")
    return slow(runs, report)


def talking(runs: tuple[Run, ...], report: Report = None) -> Columns:
    """Say a line."""
    report.line("half of it")
    return train(runs, report)
