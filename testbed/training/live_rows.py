"""Report a real model's training while it runs: a line per logged row, and installed loggers.

A line has the row's reward, accuracy, ESS and KL, and numbers that no result keeps: tokens per second,
memory, time left.
TESTBED_TENSORBOARD=FOLDER and TESTBED_WANDB=PROJECT also send every number of every row to these loggers, for
any policy. None of this changes a number of the run.
"""

import importlib
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch

from testbed.config.run import Run, cell_id
from testbed.data.rollout import Rollout
from testbed.errors import UserError
from testbed.staleness.storage import readable

TENSORBOARD, WANDB = "TESTBED_TENSORBOARD", "TESTBED_WANDB"
"""Environment variables: a folder for TensorBoard's files, a project of Weights & Biases."""
SHOWN = {
    "reward": "reward/mean",
    "accuracy": "accuracy",
    "ESS": "rollout_corr/ess_kish_sequence_raw",
    "KL": "rollout_corr/kl_mu_pi_k3",
}
"""Columns of a line."""
Line: TypeAlias = Callable[[str], None]


class Logger(Protocol):
    """Destinations of one cell's rows."""

    def add(self, step: int, row: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class Told(Protocol):
    """A report that also receives lines."""

    def line(self, text: str, /) -> None: ...


class LiveRows:
    """The rows of a pack as they are logged. say: receives a line per row; None shows none."""

    def __init__(self, runs: Sequence[Run], say: Line | None, loggers: Sequence[Sequence[Logger]]) -> None:
        self.runs, self.say, self.loggers = runs, say, loggers
        self.tokens, self.began = 0, time.monotonic()
        self.first: tuple[int, float] | None = None

    @classmethod
    def of(cls, runs: Sequence[Run], report: object) -> "LiveRows":
        """Return the rows of cells in stacked order; if `report` has `line`, it gets a real model's lines.

        Raises UserError if a requested logger is not installed.
        """
        shared = os.environ.get("RANK", "0") != "0"  # the first of several processes reports for all
        say = report.line if isinstance(report, Told) and runs[0].policy == "hf" and not shared else None
        return cls(runs, say, [] if shared else [list(_loggers(run)) for run in runs])

    @property
    def heard(self) -> bool:
        """True if any logger receives rows."""
        return self.say is not None or any(self.loggers)

    def count(self, rollout: Rollout) -> None:
        """Count the tokens of one step."""
        if self.heard:
            self.tokens += int(rollout.mask_RBT.sum())

    def add(self, step: int, row: Mapping[str, np.ndarray]) -> None:
        """Send on the row [R] logged at a step."""
        if not self.heard:
            return
        now = time.monotonic()
        speed = {"tokens_per_second": self.tokens / max(now - self.began, 1e-9), "memory_bytes": peak()}
        self.first = self.first or (step, now)
        self.tokens, self.began = 0, now
        numbers = [{n: float(v[r]) for n, v in row.items() if v.ndim == 1} for r in range(len(self.runs))]
        for r, found in enumerate(numbers):
            for logger in self.loggers[r] if self.loggers else ():
                logger.add(step, {**found, **{f"live/{name}": value for name, value in speed.items()}})
        if self.say is not None:
            for run, found in zip(self.runs, numbers, strict=True):
                self.say(line(run, step, found, speed, self._left(step, now)))

    def _left(self, step: int, now: float) -> float | None:
        """Return the seconds left at the pace since the first row, which excludes the start."""
        assert self.first is not None
        done, spent = step - self.first[0], now - self.first[1]
        return spent / done * (self.runs[0].steps - 1 - step) if done > 0 else None

    def close(self) -> None:
        """Let the loggers write buffered rows."""
        for loggers in self.loggers:
            for logger in loggers:
                logger.close()


def line(
    run: Run, step: int, row: Mapping[str, float], speed: Mapping[str, float], left: float | None
) -> str:
    """Format one row; omit values that are not numbers."""
    shown = [f"{name} {row[key]:.3g}" for name, key in SHOWN.items() if np.isfinite(row.get(key, np.nan))]
    more = [f"{speed['tokens_per_second']:,.0f} tokens/s", readable(int(speed["memory_bytes"]))]
    more += [] if left is None else [f"{int(left) // 60}:{int(left) % 60:02} left"]
    name = f"{run.recipe}, lag {run.lag}, seed {run.seed}"
    return f"{name}: step {step + 1} of {run.steps}, {', '.join([*shown, *more])}"


def peak() -> int:
    """Return this process's peak memory in bytes: the GPU's if it computes there."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return int(torch.cuda.max_memory_allocated())
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


class TensorBoard:
    """TensorBoard's files, a folder per cell."""

    def __init__(self, run: Run, folder: str) -> None:
        module = _imported("torch.utils.tensorboard", TENSORBOARD, "tensorboard")
        self.writer: Any = module.SummaryWriter(str(Path(folder, cell_id(run))))

    def add(self, step: int, row: Mapping[str, float]) -> None:
        """Write a row."""
        for name, value in row.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def close(self) -> None:
        """End the file."""
        self.writer.close()


class Wandb:
    """A run of Weights & Biases per cell, with the cell's fields as its configuration."""

    def __init__(self, run: Run, project: str) -> None:
        module = _imported("wandb", WANDB, "wandb")
        config = {name: dict(v) if isinstance(v, tuple) else v for name, v in asdict(run).items()}
        self.run: Any = module.init(project=project, name=cell_id(run), config=config, reinit="create_new")

    def add(self, step: int, row: Mapping[str, float]) -> None:
        """Log a row."""
        self.run.log(dict(row), step=step)

    def close(self) -> None:
        """End the run."""
        self.run.finish()


LOGGERS: dict[str, Callable[[Run, str], Logger]] = {TENSORBOARD: TensorBoard, WANDB: Wandb}


def _loggers(run: Run) -> list[Logger]:
    return [make(run, given) for name, make in LOGGERS.items() if (given := os.environ.get(name, ""))]


def _imported(module: str, variable: str, package: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(
            f"{variable} is set, but {package} is not installed: pip install {package}, or unset it."
        ) from error
