"""Checkpoints: a killed pack resumes from its last checkpoint and ends with the same bits.

If TESTBED_CHECKPOINT names a folder, a pack writes a file there every TESTBED_CHECKPOINT_EVERY steps (default
10) or seconds ("60s", the default of `testbed run`): weights, optimizer, versions, stored and in-flight
samples, recipe state and the rows so far. Random numbers are not stored, because seed, purpose and step
identify every draw. A file is whole or absent. It holds tensors and plain JSON; reading it runs no code.
"""

import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from testbed.anchors import Anchor
from testbed.config.pack import pack_id
from testbed.config.run import Run
from testbed.critics import Critic
from testbed.critics.fitted import Fit
from testbed.data.rollout import Rollout
from testbed.errors import UserError
from testbed.mismatch import SamplerEngine
from testbed.policies.optimizers import SGD, Adam
from testbed.policies.policy import Policy
from testbed.recipes.composition import Recipe, Replay
from testbed.results.atomic_files import mended
from testbed.results.checkpoint_files import (
    EVERY,
    Damaged,
    checkpoint_path,
    read_checkpoint,
    sweep_unfinished,
    write_checkpoint,
)
from testbed.staleness.by_age import ByAgeSource
from testbed.staleness.in_flight import InFlightSource
from testbed.staleness.latency import CellQueue, Group, LatencySource
from testbed.staleness.partial import Done, PartialSource
from testbed.staleness.replay import ReplaySource, Stored
from testbed.staleness.schedule_plan import SchedulePlan, Source
from testbed.staleness.too_old import FilteredSource
from testbed.staleness.versions import VersionBuffer
from testbed.staleness.windowed import WindowedSource
from testbed.teachers import Teacher
from testbed.teachers.guides import Guide, GuidedSource
from testbed.training.learner import Learner
from testbed.training.recorder import Recorder
from testbed.training.replay_buffer import ReplayBuffer
from testbed.training.update import State, Trainer
from testbed.worlds.world import World

Tree: TypeAlias = "dict[str, Any]"
"""A value in its JSON form."""
Value: TypeAlias = Any
"""Any value that a run holds."""

FIXED = (
    World, Run, SchedulePlan, Recipe, Replay, Policy, SamplerEngine, Fit, slice, torch.device, torch.dtype,
)  # fmt: skip
"""State that a resumed pack rebuilds from its cells and no step changes."""
LIVE = (
    Learner, Recorder, VersionBuffer, ReplayBuffer, SGD, Adam, Anchor, Critic, CellQueue, Guide, Teacher,
)  # fmt: skip
SOURCES = (
    ByAgeSource, FilteredSource, GuidedSource, InFlightSource, LatencySource, PartialSource, ReplaySource,
    WindowedSource,
)  # fmt: skip
"""State that steps change: rebuilt, then given its stored attributes."""
_REBUILT = "runs", "world", "learners", "position", "start_RP"
LEFT = {"Learner.last_pass", *(f"Recorder.{name}" for name in _REBUILT)}
"""Attributes not restored: useless beyond a step, or stored elsewhere."""
_KINDS = Rollout, State, Group, Done, Stored
RECORDS: dict[str, Callable[..., Value]] = {kind.__name__: kind for kind in _KINDS}
"""State rebuilt from its fields."""


MOST = 0.05
"""Share of a pack's time that writing checkpoints by time may take."""


@dataclass
class Checkpoints:
    """The checkpoint of one pack; `path` is None without checkpoints.

    every: steps between two checkpoints; seconds: least time between them, used instead; cost: seconds that
    the last one took. A checkpoint by time that the disk has no room for is left out.
    """

    path: Path | None
    every: int = 10
    seconds: float | None = None
    last: float = field(default_factory=time.monotonic)
    cost: float = 0.0

    @classmethod
    def of(cls, runs: Sequence[Run]) -> "Checkpoints":
        """Return the pack's checkpoint; UserError for an invalid folder or interval."""
        path, text = checkpoint_path(pack_id(runs)), os.environ.get(EVERY, "10")
        if path is None:
            return cls(None)
        if text.endswith("s") and text[:-1].isdigit():
            return cls(path, seconds=float(text[:-1]))
        if not text.isdigit() or not int(text):
            raise UserError(
                f"{EVERY} is '{text}', expected a number of steps, at least 1, or seconds as 60s."
            )
        return cls(path, int(text))

    def resume(
        self, state: State, held: "Held", say: Callable[[str], object] = lambda _: None
    ) -> tuple[State, int]:
        """Return the state to resume from and its step; the given state, and 0, without a checkpoint.

        held: newly made objects, restored here. say: is told that a damaged file was removed and the pack
        restarts, as after a damaged result. Raises UserError for a file written by other code.
        """
        if self.path is None:
            return state, 0
        sweep_unfinished(self.path)
        if not os.path.lexists(self.path):
            return state, 0
        try:
            tree, tensors = read_checkpoint(self.path)
        except Damaged as error:
            with mended(self.path):
                self.path.unlink(missing_ok=True)  # another process may have removed it
            say(f"The checkpoint {self.path} was damaged ({error}); the pack starts again.")
            return state, 0
        step = int(tree["step"])
        # Recipes are not stored: going through the steps again leaves every learner with its present one.
        for past in range(step):
            held.trainer.switch_recipes(state, past)
        reader = _Reader(tensors, state.theta_RP.device)
        reader.value(tree["live"], held.live)
        held.world.counts().update(reader.value(tree["counts"]))
        found: State = reader.value(tree["state"])
        return found, step

    def save(self, state: State, held: "Held", step: int) -> None:
        """Write the checkpoint after `step` steps, if it is due."""
        if self.path is None or not self._due(step) or os.environ.get("RANK", "0") != "0":
            return  # the first of several processes writes for all
        writer = _Writer()
        try:
            tree = {"step": step, "state": writer.value(state), "live": writer.value(held.live)}
            tree["counts"] = writer.value(held.world.counts())
        except TypeError:
            if self.seconds is None:
                raise
            self.path = None  # by default an unresumable run continues without checkpoints
            return
        began = time.monotonic()
        if self.seconds is None or _fits(self.path.parent, writer.tensors.values()):
            write_checkpoint(self.path, tree, writer.tensors)
        self.last = time.monotonic()
        self.cost = self.last - began

    def _due(self, step: int) -> bool:
        if self.seconds is None:
            return step % self.every == 0
        return time.monotonic() - self.last >= (max(self.seconds, self.cost / MOST) if self.seconds else 0)


def _fits(folder: Path, tensors: Iterable[Tensor]) -> bool:
    """Return whether half of the free disk holds the tensors: packs beside this one write there too."""
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    return size <= shutil.disk_usage(there).free // 2


@dataclass(frozen=True)
class Held:
    """Everything besides the state that steps change."""

    world: World
    trainer: Trainer
    source: Source
    recorder: Recorder

    @property
    def live(self) -> dict[str, object]:
        return {"source": self.source, "learners": self.trainer.learners, "recorder": self.recorder}


class _Writer:
    """Split values into JSON and tensors; shared values are written once."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._keys: dict[int, str] = {}
        self._numbers: dict[int, int] = {}
        self._held: set[int] = set()

    def value(self, value: Value) -> Tree:
        """Return the JSON of a value; TypeError for an unsupported kind."""
        if value is None or isinstance(value, bool | int | float | str):
            return {"plain": value}
        if isinstance(value, Tensor):
            return {"tensor": self._tensor(value)}
        if isinstance(value, np.ndarray | np.generic):
            return {"array": self._add(torch.from_numpy(np.array(value)))}
        if type(value).__name__ in RECORDS:
            if id(value) in self._numbers:
                return {"same": self._numbers[id(value)]}
            self._numbers[id(value)] = number = len(self._numbers)
            fields = value._asdict() if isinstance(value, Done | Group) else vars(value)
            parts = {name: self.value(part) for name, part in fields.items()}
            return {"record": type(value).__name__, "number": number, "fields": parts}
        if isinstance(value, (*LIVE, *SOURCES)):
            kind = type(value).__mro__[-2].__name__ if isinstance(value, Anchor) else type(value).__name__
            names = [name for name in vars(value) if f"{kind}.{name}" not in LEFT]
            return {"live": {name: self.value(getattr(value, name)) for name in names}}
        if isinstance(value, dict):
            return {"dict": [[self.value(key), self.value(item)] for key, item in value.items()]}
        if isinstance(value, list | tuple | deque):
            length = {"maxlen": value.maxlen} if isinstance(value, deque) else {}
            return {type(value).__name__: [self.value(item) for item in value], **length}
        if isinstance(value, FIXED) or callable(value):
            return {"fixed": type(value).__name__}
        raise TypeError(f"a checkpoint has no rule for {type(value).__name__}")

    def _tensor(self, value: Tensor) -> str:
        if id(value) not in self._keys:
            self._keys[id(value)] = self._add(value.detach())
        return self._keys[id(value)]

    def _add(self, value: Tensor) -> str:
        held = value.untyped_storage()
        whole = held.nbytes() == value.numel() * value.element_size() and held.data_ptr() not in self._held
        self._held.add(held.data_ptr())  # each memory is stored once
        key = f"t{len(self.tensors)}"
        self.tensors[key] = value.cpu().contiguous() if whole else value.cpu().contiguous().clone()
        return key


class _Reader:
    """Reassemble values; live objects keep their identity and get their attributes back."""

    def __init__(self, tensors: dict[str, Tensor], device: torch.device) -> None:
        self.tensors, self.device = tensors, device
        self._records: dict[int, Value] = {}
        self._moved: dict[str, Tensor] = {}

    def value(self, tree: Tree, current: Value = None) -> Value:
        """Return the value; current: the object now in its place."""
        kind = next(iter(tree))
        if kind == "plain":
            return tree[kind]
        if kind == "fixed":
            return current
        if kind == "array":
            return self.tensors[tree[kind]].numpy()
        if kind == "tensor":
            return self._tensor(tree[kind], current)
        if kind == "same":
            return self._records[tree[kind]]
        if kind == "record":
            parts = {name: self.value(part) for name, part in tree["fields"].items()}
            self._records[tree["number"]] = RECORDS[tree[kind]](**parts)
            return self._records[tree["number"]]
        if kind == "live":
            for name, part in tree[kind].items():
                object.__setattr__(current, name, self.value(part, getattr(current, name, None)))
            return current
        if kind == "dict":
            known = current if isinstance(current, dict) else {}
            pairs = [(self.value(key), item) for key, item in tree[kind]]
            return {key: self.value(item, known.get(key)) for key, item in pairs}
        there = list(current) if isinstance(current, list | tuple | deque) else []
        there += [None] * (len(tree[kind]) - len(there))
        items = [self.value(item, now) for item, now in zip(tree[kind], there, strict=False)]
        if kind == "deque":
            return deque(items, tree["maxlen"])
        return tuple(items) if kind == "tuple" else items

    def _tensor(self, key: str, current: Value) -> Tensor:
        saved = self.tensors[key]
        mapped = isinstance(current, Tensor) and current.shape == saved.shape and not current.requires_grad
        if mapped and current.device.type == "cpu" and key not in self._moved and current.is_shared():
            return current.copy_(saved)  # keep versions in their file
        if key not in self._moved:
            device = current.device if isinstance(current, Tensor) else self.device
            self._moved[key] = saved.to(device)
        return self._moved[key]
