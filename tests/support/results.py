"""A pytest plugin: write down everything that functions of some packages return or print while tests run.

A function's row has the number of its results, their texts as a checksum, a weighted sum of all of their
numbers, and the first result in words. A slip that changes any result moves its row, and names the place.
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
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
AREAS = (
    "testbed/policies", "testbed/config", "testbed/execution", "testbed/training", "testbed/recipes",
    "testbed/advantages", "testbed/objectives", "testbed/estimators", "testbed/offline", "testbed/worlds",
    "testbed/teachers", "testbed/mismatch", "testbed/inspection", "envs", "analysis/kernels",
    "testbed/staleness", "testbed/pipeline", "testbed/logs", "testbed/diagnostics", "testbed/results",
    "testbed/cli", "testbed/losses", "testbed/exact", "testbed/anchors", "testbed/critics",
    "testbed/prefixes", "testbed/stacks", "testbed/testing", "analysis/judging", "analysis/tables",
    "analysis/commands",
)  # fmt: skip
LEFT_OUT = (
    # reads clock, memory, cores, versions or environment
    "memory.py Room.versions", "progress.py Progress.left", "execution/threads.py", "worker.py _provenance",
    "worker.py _setting", "worker.py _threads", "worker.py _cpu", "base_models.py",
    "executors.py Local.__init__", " _default_executor", "loop.py peak",
    "checkpoint.py Checkpoints._due", "cost.py timed", "options.py bfloat16_slowdown", "progress.py Plain",
    "progress.py _clock", "Store.note_share", "Locks.note",
    "store.py Store.commit", "store.py _json", "store.py Store.quarantined", "atomic_files.py record",
    # reads names of folders, or verdicts and tables that are committed
    "files.py _numbers", "scalars.py read_as", "committed.py", "verdicts.py", "claims.py committed",
    "kinds.py _", "system_list.py", "leaderboard_page.py _brief", "sentences.py Statement.",
    "gates.py objections", "needed.py costs",
    # is called as experiments are loaded
    "replication.py averaged", "replication.py of_seeds", "cell_table.py words", "config/run.py",
    # holds memory that is not yet written
    "growing_cache.py", "simulate.py _store", "versions.py VersionBuffer.__init__", "storage.py allocate",
    "storage.py available", "Decoder.__init__", "layers.py _arrays", "layers.py _like",
    # writes compiled code, or sets of names in any order
    "toy/simd.py", "json_files.py", "lora.py _saved_settings", "lora.py checked_settings",
)  # fmt: skip
"""Functions that return something else on another machine or day."""
MOMENTARY = re.compile(r"^(perf|live|time)\b|seconds|memory|began|since|^_?last$|provenance|^versions$")
"""Names of values that do."""
NAMELESS = ("__repr__", "<lambda>", "<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "<module>")
CALLS = 8
"""Results of a function that count in one test: the first ones."""
DEPTH, ITEMS = 4, 64
PRINT = print
LOCAL = re.compile(r"(/[\w.+=-]+){2,}|0x[0-9a-f]+|\b[0-9a-f]{12,}\b")
"""Folders, addresses and digests."""
FRACTION = re.compile(r"\d+\.\d+(e[+-]?\d+)?|\d+e[+-]?\d+")
"""Numbers in texts that rounding may move."""
THIN = 1000.0
"""Numbers enter as asinh(1000 x): those near 1e-3 weigh as much as those near 1e3."""


@dataclasses.dataclass
class Row:
    """Results of a function, folded: their count, a checksum of texts, a sum of numbers and its size."""

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
                self.texts = zlib.crc32(FRACTION.sub("#", words[-1]).encode(), self.texts)
            else:
                self._count(part)
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
        place_N = np.arange(self.numbers, self.numbers + x_N.size)
        x_N = np.nan_to_num(x_N, nan=0.123, posinf=1e30, neginf=-1e30)
        y_N = np.arcsinh(THIN * x_N.clip(-1e300, 1e300))
        self.total += float(np.cos(1.7 * place_N) @ y_N)
        self.square += float(y_N @ y_N)
        self.numbers += x_N.size


def parts(value: object, depth: int) -> Iterator[str | np.ndarray]:
    """Yield the texts of a value, and its numbers as flat arrays of float64."""
    if value is None or isinstance(value, str | bool | type):
        yield repr(value) if isinstance(value, type) else str(value)
    elif isinstance(value, int | float | np.number):
        yield np.array([float(value)])
    elif (array := as_array(value)) is not None:
        yield f"{type(value).__name__}{list(array.shape)}"
        if array.size:
            yield np.ravel(array).astype(np.float64)
    elif depth and isinstance(value, Mapping):
        for name, item in islice(value.items(), ITEMS):
            if not MOMENTARY.search(str(name)):
                yield f"{name}:"
                yield from parts(item, depth - 1)
    elif depth and isinstance(value, list | tuple | set | frozenset):
        yield f"{type(value).__name__} of {len(value)}"
        items = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
        for item in islice(items, ITEMS):
            yield from parts(item, depth - 1)
    else:
        yield getattr(value, "__qualname__", None) or type(value).__name__
        if depth and type(value).__module__.partition(".")[0] in ("testbed", "envs", "analysis"):
            yield from parts(fields(value), depth - 1)


def as_array(value: object) -> np.ndarray | None:
    """Return the numbers of an array or tensor, None for anything else."""
    if hasattr(value, "requires_grad"):  # a text stream, too, can be detached
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
    """Yield what a call may have changed: a new object, lists, dicts and, without a result, arrays."""
    code = frame.f_code
    for name, given in islice(frame.f_locals.items(), code.co_argcount + code.co_kwonlyargcount):
        if name == "self" and code.co_name == "__init__":
            yield fields(given)
        elif isinstance(given, list | dict) or (value is None and as_array(given) is not None):
            yield given


class Recorder:
    """Watch every return of a function of the areas, a few in each test."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self._name: dict[CodeType, str] = {}
        self._met: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, value: object) -> None:
        """Take what `sys.setprofile` tells."""
        if event != "return":
            return
        name = self.name_of(frame.f_code)
        if not name or self._met[name] == CALLS:
            return
        self._met[name] += 1
        row = self.rows.setdefault(name, Row())
        row.take(chain([value], changed(frame, value)))

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
        known = inside.startswith(tuple(f"{area}/" for area in AREAS))
        name = f"{inside} {code.co_qualname}"
        return name if known and not any(part in name for part in LEFT_OUT) else ""

    def _print(self, *words: object, **named: Any) -> None:
        """Count what a function prints as a result of it."""
        if name := self._named(sys._getframe(1).f_code):
            self.rows.setdefault(name, Row()).add(words)
        PRINT(*words, **named)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        """Watch one test, its fixtures included."""
        self._met.clear()
        builtins.print = self._print
        sys.setprofile(self)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            builtins.print = PRINT

    def pytest_sessionfinish(self) -> None:
        """Write the rows to the file that the environment names."""
        Path(os.environ["TESTBED_RESULTS"]).write_text(
            json.dumps({n: r.line() for n, r in self.rows.items()})
        )


def pytest_configure(config: pytest.Config) -> None:
    """Start to watch."""
    config.pluginmanager.register(Recorder(), "results-recorder")
