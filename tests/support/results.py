"""A pytest plugin: write down everything that functions of some packages return or print while tests run.

A function's row has the number of its results, their texts and whole numbers as a checksum, a weighted sum of
all other numbers, and the first result in words. What a call changes or refuses is a result too. A slip that
changes any of it moves the row, and names the place.
`contracts/test_results.py` runs chosen tests with it and compares the rows with golden/results.
"""

import builtins
import dataclasses
import json
import math
import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from itertools import chain, islice
from pathlib import Path, PurePath
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from testbed.errors import UserError

ROOT = Path(__file__).parents[2]
AREAS = (
    "testbed/", "envs/", "analysis/kernels/", "analysis/judging/", "analysis/tables/", "analysis/commands/",
)  # fmt: skip
LEFT_OUT = (
    # reads clock, memory, cores, versions or environment
    "memory.py Room.versions", "progress.py Progress.left", "progress.py Progress.settled",
    "progress.py Progress.done_of_planned", "execution/threads.py", "worker.py _provenance",
    "worker.py _setting", "worker.py _threads", "worker.py _cpu", "base_models.py", "execution/executors.py",
    "_Feed.stopping", "manifest.py entry", "Objectives.__getitem__",
    " _default_executor", "loop.py peak", "manifest.py _line",
    "checkpoint.py Checkpoints._due", "cost.py timed", "options.py bfloat16_slowdown", "progress.py Plain",
    "progress.py _clock", "Store.note_share", "Locks.note", "Locks.release",
    "cli/doctor.py", "storage.py readable", "runner.py _Feed.take", "checkpoint.py Held.live",
    "store.py Store.commit", "store.py _json", "store.py Store.quarantined", "atomic_files.py record",
    # reads names of folders, or verdicts and tables that are committed
    "files.py _numbers", "scalars.py read_as", "committed.py", "verdicts.py", "claims.py committed",
    "claims.py matching", "Claims.__getitem__", "digests.py", "claims.py _made_of", "listing.py narrowed",
    "cli/__init__.py _complain", "show_command.py _", "show_command.py look_up", "listing.py counts",
    "claims.py kind_of", "kinds.py _", "system_list.py", "leaderboard_page.py _brief",
    "sentences.py Statement.", "gates.py objections", "needed.py costs",
    # is called as experiments are loaded
    "replication.py averaged", "replication.py of_seeds", "cell_table.py words", "config/run.py",
    # holds memory that is not yet written
    "growing_cache.py", "simulate.py _store", "versions.py VersionBuffer.__init__", "storage.py allocate",
    "storage.py available", "Decoder.__init__", "VersionBuffer.write", "toy/compiled.py",
    "weight_anchors.py Version.start", "toy/decoder.py counts", "toy/decoder.py served",
    "layers.py _arrays", "layers.py _like", "simulate.py Report.mean",
    # writes compiled code, or sets of names in any order
    "toy/simd.py", "json_files.py", "lora.py _saved_settings", "lora.py checked_settings",
    "testbed/errors.py", "testbed/data/", "testbed/registry.py", "check_model_folder", "log_ratio_histogram",
    "pipeline/heap.py",
    # tells what a library says, or sorts numbers that rounding alone tells apart
    "files.py parquet_rows", "estimator_distribution.py exact_distribution",
    # passes on a histogram in which rounding moves a token from one bin to the next
    "LiveRows.add", "Recorder._keep", "recorder.py blanks",
)  # fmt: skip
"""Functions that return something else on another machine or day."""
CLOCKS = (
    "execution/executors.py", "execution/progress.py", "execution/runner.py", "training/loop.py",
    "training/recorder.py", "training/checkpoint.py",
)  # fmt: skip
"""Files whose objects hold moments of time, or counts that rounding moves."""
MOMENTARY = re.compile(r"^(perf|live|time)\b|seconds|memory|began|since|^_?last$|provenance|^versions$")
"""Names of values that do."""
NAMELESS = ("__repr__", "<lambda>", "<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "<module>")
CALLS = 8
"""Results of a function that count in one test: the first ones, then those of calls 16, 32, 64 and so on."""
DEPTH, ITEMS, SMALL, LARGE = 4, 64, 512, 4096
"""Levels and items of a value that count, numbers of an array given to a call with a result, of any array."""
PRINT = print
LOCAL = re.compile(r"(/[\w.+=-]+){2,}|0x[0-9a-f]+|(?<!\.)\b[0-9a-f]{12,}\b")
"""Folders, addresses and digests."""
FRACTION = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?|-?\d+e[+-]?\d+")
"""Numbers in texts that rounding may move; they count as numbers."""
THIN = 1000.0
"""Numbers enter as asinh(1000 x): those near 1e-3 weigh as much as those near 1e3."""


@dataclasses.dataclass
class Row:
    """Results of a function, folded: a count, a checksum of what is exact, a sum of numbers and its size."""

    results: int = 0
    texts: int = 0
    total: float = 0.0
    square: float = 0.0
    numbers: int = 0
    first: str = ""

    def add(self, value: object) -> None:
        """Fold one more result in."""
        self.results += 1
        words: list[str] = []
        for part in parts(value, DEPTH):
            if isinstance(part, str):
                words.append(LOCAL.sub("…", part))
                self.texts = zlib.crc32(FRACTION.sub("#", words[-1]).encode("utf-8", "replace"), self.texts)
                self._count(np.array([float(each) for each in FRACTION.findall(words[-1])]))
            elif part.dtype.kind in "biu":
                self.texts = zlib.crc32(part.astype(np.int64).tobytes(), self.texts)
                words.append(f"{part.mean():.3g}")
            else:
                self._count(part.astype(np.float64))
                words.append(f"{part.mean():.3g}")
        self.first = self.first or " ".join(" ".join(words)[:90].split())

    def take(self, values: Iterable[object]) -> None:
        """Fold in one more result and what its call changed."""
        try:
            with np.errstate(all="ignore"):
                self.add(tuple(values))
        except Exception as error:  # a tensor inside a transform has no numbers
            self.add(type(error).__name__)

    def line(self) -> list[object]:
        """Return the columns of the table; digits that rounding moves are cut off."""
        total, size = round(self.total, 6), float(f"{math.sqrt(self.square):.4g}")
        return [self.results, self.texts, total, size, self.first]

    def _count(self, x_N: np.ndarray) -> None:
        x_N = np.nan_to_num(x_N, nan=0.123, posinf=1e30, neginf=-1e30)
        if x_N.size > LARGE:  # sums of numbers that stand far apart
            x_N = np.append(x_N, np.zeros(-x_N.size % LARGE)).reshape(-1, LARGE).sum(0)
        place_N = np.arange(self.numbers, self.numbers + x_N.size)
        y_N = np.arcsinh(THIN * x_N.clip(-1e300, 1e300))
        self.total += float(np.cos(1.7 * place_N) @ y_N)
        self.square += float(y_N @ y_N)
        self.numbers += x_N.size


def parts(value: object, depth: int) -> Iterator[str | np.ndarray]:
    """Yield the texts of a value, and its numbers as flat arrays."""
    if value is None or isinstance(value, str | bool | type | range | slice | Enum):
        yield repr(value) if isinstance(value, type) else str(value)
    elif isinstance(value, int | float | np.number):
        exact = isinstance(value, int) and abs(value) < 1 << 62
        yield np.array([value if exact else float(value)])
    elif isinstance(value, PurePath):
        yield value.name
    elif (array := as_array(value)) is not None:
        yield f"{type(value).__name__}{list(array.shape)}"
        if array.size:
            yield np.ravel(array)
    elif depth and isinstance(value, pd.DataFrame | pd.Series):
        yield f"{type(value).__name__} of {value.shape}"
        columns = value.items() if isinstance(value, pd.DataFrame) else [(value.name, value)]
        for name, column in (each for each in columns if not MOMENTARY.search(str(each[0]))):
            yield str(name)
            yield from parts(column.to_numpy(), depth - 1)
    elif depth and isinstance(value, Mapping):
        for name, item in islice(value.items(), ITEMS):
            if not MOMENTARY.search(str(name)):
                yield f"{name}:"
                yield from parts(item, depth - 1)
    elif depth and isinstance(value, list | tuple | set | frozenset | np.ndarray):
        items = value.ravel().tolist() if isinstance(value, np.ndarray) else value
        yield f"{type(value).__name__} of {len(items)}"
        for item in islice(sorted(items, key=repr) if isinstance(items, set | frozenset) else items, ITEMS):
            yield from parts(item, depth - 1)
    else:
        yield getattr(value, "__qualname__", None) or type(value).__name__
        if depth and type(value).__module__.partition(".")[0] in ("testbed", "envs", "analysis"):
            yield from parts(fields(value), depth - 1)


def as_array(value: object) -> np.ndarray | None:
    """Return the numbers of an array or tensor, None for anything else."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = (value if str(value.dtype) != "torch.bfloat16" else value.float()).numpy()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return value
    return None


def fields(value: object) -> dict[str, Any]:
    """Return an object's attributes, without computing any."""
    if hasattr(value, "__dict__"):
        return dict(vars(value))
    return {name: getattr(value, name) for name in getattr(value, "__slots__", ()) if hasattr(value, name)}


def changed(frame: FrameType, value: object) -> Iterator[object]:
    """Yield what a call may have changed: lists, dicts, small arrays, without a result arrays and self."""
    code = frame.f_code
    for name, given in islice(frame.f_locals.items(), code.co_argcount + code.co_kwonlyargcount):
        if name == "self" and value is None and not code.co_filename.endswith(CLOCKS):
            yield fields(given)
        elif isinstance(given, list | dict):
            yield given
        elif (array := as_array(given)) is not None:
            yield given if value is None or array.size <= SMALL else "large"


class Recorder:
    """Watch every return of a function of the areas, a few in each test."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self._name: dict[CodeType, str] = {}
        self._met: Counter[str] = Counter()

    def watcher(self) -> Callable[[FrameType, str, object], None]:
        """Return what `sys.setprofile` calls at every event: a plain function, which costs least."""
        names, met = self._name, self._met

        def watch(frame: FrameType, event: str, value: object) -> None:
            if event != "return" or not names.get(frame.f_code, "new"):
                return
            if name := self.name_of(frame.f_code):
                met[name] += 1
                if (call := met[name]) <= CALLS or not call & (call - 1):
                    self.rows.setdefault(name, Row()).take(chain([value], changed(frame, value)))

        return watch

    def name_of(self, code: CodeType) -> str:
        """Return "file function" for what is watched, "" for all else."""
        if (name := self._name.get(code)) is None:
            name = self._name[code] = self._named(code)
        return name

    def _named(self, code: CodeType) -> str:
        path = code.co_filename
        if not path.startswith(str(ROOT)) or code.co_name in NAMELESS:
            return ""
        inside = path[len(str(ROOT)) + 1 :]
        name = f"{inside} {code.co_qualname}"
        return name if inside.startswith(AREAS) and not any(part in name for part in LEFT_OUT) else ""

    def _print(self, *words: object, **named: Any) -> None:
        """Count what a function prints as a result of it."""
        if name := self._named(sys._getframe(1).f_code):
            self.rows.setdefault(name, Row()).add(words)
        PRINT(*words, **named)

    def _refuse(self, error: UserError, *words: object) -> None:
        """Count what a function refuses as a result of it."""
        ValueError.__init__(error, *words)
        frame = sys._getframe(2)
        while frame.f_code.co_filename.endswith("testbed/errors.py") and frame.f_back:
            frame = frame.f_back
        if name := self.name_of(frame.f_code):
            self.rows.setdefault(name, Row()).add(("refused", *words))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        """Watch one test, its fixtures included."""
        self._met.clear()
        builtins.print = self._print
        UserError.__init__ = lambda *words: self._refuse(*words)  # type: ignore[method-assign]
        sys.setprofile(self.watcher())
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            builtins.print = PRINT
            del UserError.__init__

    def pytest_sessionfinish(self) -> None:
        """Write the rows to the file that the environment names."""
        Path(os.environ["TESTBED_RESULTS"]).write_text(
            json.dumps({n: r.line() for n, r in self.rows.items()})
        )


def pytest_configure(config: pytest.Config) -> None:
    """Start to watch."""
    config.pluginmanager.register(Recorder(), "results-recorder")
