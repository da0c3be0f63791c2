"""The training loop of every world: stacked cells, any schedule of lag, any recipe.

`train_pack` reads top to bottom: one step, from rollout to weights. Its parts are in staleness/
(which weights generate), update.py (advantages, gradient, weights) and recorder.py (logged metrics).

A line of progress has the row's reward, accuracy, ESS and KL, and numbers that no result keeps: tokens per
second, memory, time left. TESTBED_TENSORBOARD=FOLDER and TESTBED_WANDB=PROJECT also send every number of
every row to these loggers, for any policy. None of this changes a number of the run.

If TESTBED_RECORD names a folder (`testbed run … record=tokens` sets it), every cell writes a file there at
each logged step, CELL/step_N.tokens.parquet, before the weights change. It changes no number of the run.
"""

import contextlib
import importlib
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from testbed.config.run import Run, cell_id
from testbed.data.batch import EXPERT, Batch
from testbed.data.rollout import Rollout
from testbed.errors import UserError
from testbed.logs.record import RECORD, LoggedSequence, made, write
from testbed.staleness import build_source
from testbed.staleness.storage import readable
from testbed.teachers import build_teacher
from testbed.teachers.guides import build_guided
from testbed.training.checkpoint import Checkpoints, Held
from testbed.training.learner import Learner
from testbed.training.recorder import Columns, Recorder
from testbed.training.update import State, Trainer, Update
from testbed.worlds.build_world import build_world


@dataclass(frozen=True)
class TokenRecord:
    """Token files of a pack's cells, in stacked order; empty without a folder."""

    folder: Path | None
    cells: tuple[str, ...]

    @classmethod
    def of(cls, runs: Sequence[Run]) -> "TokenRecord":
        """Return the record of cells in stacked order."""
        folder = os.environ.get(RECORD, "")
        return cls(Path(folder) if folder else None, tuple(map(cell_id, runs)) if folder else ())

    def add(
        self, step: int, rollout: Rollout, update: Update, learners: Sequence[Learner], alive_R: Tensor
    ) -> None:
        """Write one step's tokens, a file per cell; diverged cells write none.

        Demonstrations are omitted: no policy sampled them. Raises UserError if a file cannot be written.
        """
        if self.folder is None:
            return
        for learner, batch in zip(learners, update.batches, strict=True):
            for place, r in enumerate(range(len(self.cells))[learner.rows]):
                if not bool(alive_R[r]):
                    continue
                found = _sequences(step, rollout.rows(slice(r, r + 1)), update.logp_RBT[r], batch, place)
                if any(one.mask.any() for one in found):
                    write(made(f"testbed, {self.cells[r]}", found), self._file(r, step))

    def _file(self, r: int, step: int) -> Path:
        assert self.folder is not None
        return self.folder / self.cells[r] / f"step_{step:06d}.tokens.parquet"


def _sequences(step: int, one: Rollout, logp_BT: Tensor, batch: Batch, place: int) -> list[LoggedSequence]:
    """Return one replica's sequences: row `place` of its learner's batch."""
    arrays = {
        "mask": batch.mask_BT[place],
        "token": one.token_RBT[0],
        "logp_mu": batch.logp_mu_BT[place],
        "logp_pi": logp_BT,
        "advantage": batch.adv_BT[place],
    }
    if not torch.equal(batch.logp_anchor_BT[place], batch.logp_mu_BT[place]):
        arrays["logp_anchor"] = batch.logp_anchor_BT[place]
    if one.version_RBT is not None:
        arrays["version"] = one.version_RBT[0]
    held = {name: _numpy(value.expand_as(batch.mask_BT[place])) for name, value in arrays.items()}
    numbers = one.prompt_RNQ[0], batch.group_B[place], one.reward_RB[0]
    prompt_NQ, group_B, reward_B = map(_numpy, numbers)
    found = []
    for b in range(len(reward_B)):
        if one.origin_RB is not None and int(one.origin_RB[0, b]) == EXPERT:
            continue
        end = int(np.flatnonzero(held["mask"][b])[-1]) + 1 if held["mask"][b].any() else 0
        lists: dict[str, Any] = {name: value[b, :end] for name, value in held.items()}
        found.append(
            LoggedSequence(
                step=step,
                sample=f"{step}/{b}",
                group=f"{step}/{int(group_B[b])}",
                reward=float(reward_B[b]),
                trainer_version=step,
                prompt=prompt_NQ[b // one.group],
                **lists,
            )
        )
    return found


def _numpy(value: Tensor) -> np.ndarray:
    array: np.ndarray = value.detach().cpu().numpy()
    return array.astype(np.float64) if array.dtype.kind == "f" else array


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


Report: TypeAlias = Callable[[int, int], None]


def train_pack(runs: tuple[Run, ...], report: Report | None = None) -> Columns:
    """Train cells of equal shape side by side and return their logs, sorted by cell, then step.

    A step generates one batch and updates on it once, or `Recipe.passes` times; lag counts steps. If the age
    limit discards every sample, the step makes no update.

    If TESTBED_CHECKPOINT names a folder, a killed pack resumes from its checkpoint there.

    Args:
        runs: cells that differ only in the fields of packs.STACKED.
        report: called with (steps done, steps in all) as the pack advances; see LiveRows for its `line`.
    """
    # Cells with one recipe lie side by side, so that the rows of its learner are a slice.
    order = sorted(range(len(runs)), key=lambda i: (runs[i].recipe, runs[i].recipe_args, i))
    stacked = tuple(runs[i] for i in order)
    world = build_world(stacked)
    state = State.start(world.initial())
    teacher = build_teacher(stacked, world, state.theta_RP)
    source = build_guided(build_source(stacked, world, state.theta_RP), stacked, teacher)
    trainer = Trainer.of(stacked, world, state.theta_RP, teacher)
    recorder = Recorder(stacked, order, world, trainer.learners, state.theta_RP)
    tokens = TokenRecord.of(stacked)
    live = LiveRows.of(stacked, report)

    held = Held(world, trainer, source, recorder)
    checkpoints = Checkpoints.of(runs)
    say = report.line if isinstance(report, Told) else partial(print, file=sys.stderr)
    state, first = checkpoints.resume(state, held, say)
    for step in range(first, stacked[0].steps):
        trainer.switch_recipes(state, step)
        generated = source.batch(state.theta_RP, step)
        if generated.empty:
            recorder.add_empty(step, state, generated)
        else:
            rollout, state = mask_nonfinite_replicas(generated.rollout, state)
            live.count(rollout)
            rollout = trainer.mix(state.theta_RP, rollout, step)
            update = trainer.first_pass(state.theta_RP, rollout, step, entropy=recorder.due(step))
            # Logged before the weights change, but after the gradient has shown which replicas diverge.
            recorder.add(step, state, generated, rollout, update)
            if recorder.due(step):
                tokens.add(step, rollout, update, trainer.learners, state.alive_R)
            state = trainer.learn(state, rollout, update, step)
            recorder.add_last_pass(step)
            if recorder.due(step):
                live.add(step, recorder.rows[-1])
        checkpoints.save(state, held, step + 1)
        if report:
            report(step + 1, stacked[0].steps)
    live.close()
    return recorder.columns()


def train(run: Run, report: Report | None = None) -> Columns:
    """Train one run.

    Args:
        run: its settings.
        report: called with (step, steps) after every step.

    Returns:
        Logged columns by name, each [rows]: "cell", "step" and the metrics of docs/metrics.md.

    Raises UserError for wrong values, and for settings that contradict each other.
    """
    if not isinstance(run, Run):
        raise UserError(f"train got a {type(run).__name__}, expected one Run; tb.sweep runs several.")
    with contextlib.suppress(ModuleNotFoundError):  # a bare GPU machine trains without pydantic
        from testbed.config.fields import check

        run = check(run)
    return train_pack((run,), report)


def mask_nonfinite_replicas(rollout: Rollout, state: State) -> tuple[Rollout, State]:
    """Zero non-finite log-probabilities in the rollout, and mark their replicas as not finite in the state.

    They are recorded as diverged; the zeros keep them from stopping the replicas stacked with them.
    """
    finite_R = torch.isfinite(rollout.logp_mu_RBT).flatten(1).all(-1)
    logp_RBT = rollout.logp_mu_RBT.masked_fill(~finite_R[:, None, None], 0.0)
    return replace(rollout, logp_mu_RBT=logp_RBT), replace(state, alive_R=state.alive_R & finite_R)
