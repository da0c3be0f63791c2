"""A pytest plugin: call functions of the areas again, at edges of what tests gave them, and write rows down.

Two calls of a function are kept, the first and the largest of those that follow. Afterwards one argument is
moved at a time: a number to 0, 1 and beside itself, a flag to its opposite, an option to its default, values
to zeros, ties, their negative, NaN and infinity, a mask to all and none, a sequence to nothing, to its first
item and round. Arrays also lose rows together. Nothing is written, and no process starts meanwhile.
"""

import copy
import dataclasses
import gc
import inspect
import math
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from support.results import Recorder, Row

SEEN, MOST, SIZE = 4, 40, 2000
"""Calls that are looked at, moved calls of one that is kept, and numbers and objects in its arguments."""
FORBIDDEN = (
    "subprocess", "socket", "shutil", "signal", "_thread", "tempfile", "fcntl", "os.remove", "os.rename",
    "os.mkdir", "os.rmdir", "os.kill", "os.fork", "os.exec", "os.posix", "os.putenv", "os.link", "os.chdir",
)  # fmt: skip
LEFT_OUT = (
    "analysis/commands/", "testbed/cli/", "analysis/judging/seed_power.py bet_seeds",
    "analysis/kernels/constrained.py primal_dual", "testbed/estimators/dice.py",
    "testbed/results/user_cache.py", "testbed/estimators/trajectory_sums.py _weigh",
    "testbed/logs/ratio_checks.py _middles",
    "analysis/judging/gates.py _table", "analysis/judging/gates.py base_data_of",
    "analysis/tables/condensed.py load_tables", "analysis/tables/remeasured.py measure",
)  # fmt: skip
"""What takes long at an edge, or depends on old memory, on rounding, or on what is committed."""
OTHER = inspect.CO_VARARGS | inspect.CO_GENERATOR
UNMADE = re.compile(r"<locals>|__init__$|__post_init__$")
"""Kinds of functions that are not called again."""
Given = dict[str, Any]
ARRAY = np.ndarray | torch.Tensor


class Edges:
    """Calls of functions, to be made again with other arguments."""

    def __init__(self) -> None:
        self.kept: dict[CodeType, list[Given]] = {}
        self._seen: Counter[CodeType] = Counter()
        self._size: dict[CodeType, int] = {}
        self.closed = False

    def keep(self, frame: FrameType) -> None:
        """Copy the arguments of a call if it is the first, or the largest so far."""
        code = frame.f_code
        self._seen[code] += 1
        if self._seen[code] > SEEN or code.co_flags & OTHER or UNMADE.search(code.co_qualname):
            return
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        try:
            given = {name: frame.f_locals[name] for name in names}
            if (size := weigh(given, 0)) > self._size.get(code, 0):
                self._size[code] = size
                self.kept[code] = [*self.kept.get(code, ())[:1], copied(given)]
        except Exception:  # what cannot be copied cannot be given again
            return

    def again(self, function: FunctionType) -> Iterator[list[object]]:
        """Yield what the function returns, or raises, in every moved call."""
        for given in self.kept[function.__code__]:
            every = list(moves(given, function))
            for moved in every[:: max(1, math.ceil(len(every) / MOST))]:
                yield self._answer(function, moved)

    def hook(self, event: str, args: tuple) -> None:
        """Refuse what would change files or start a process while calls are made again (an audit hook)."""
        mode, flags = args[1:] if event == "open" else ("", 0)
        writes = set(mode or "") & set("wax+") or (not mode and (flags or 0) & 3)
        if self.closed and (writes or event.startswith(FORBIDDEN)):
            raise PermissionError(event)

    def _answer(self, function: FunctionType, given: Given) -> list[object]:
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        torch.manual_seed(0)
        first = function.__code__.co_varnames[: function.__code__.co_posonlyargcount]
        self.closed = True
        try:
            value = function(*(given.pop(name) for name in first if name in given), **given)
            return [value, *(each for each in given.values() if isinstance(each, list | dict | np.ndarray))]
        except (Exception, SystemExit) as error:
            return [f"{type(error).__name__} {error if type(error).__module__ == 'testbed.errors' else ''}"]
        finally:
            self.closed = False


def functions() -> dict[CodeType, FunctionType]:
    """Return the function of every code that is alive."""
    gc.unfreeze()
    return {each.__code__: each for each in gc.get_objects() if type(each) is FunctionType}


def weigh(value: object, found: int) -> int:
    """Return the size of a value and of all in it; raise ValueError beyond SIZE, and where it is no data."""
    if found > SIZE or isinstance(value, torch.nn.Module | ModuleType) or inspect.isgenerator(value):
        raise ValueError
    if isinstance(value, ARRAY):
        return found + math.prod(value.shape)
    inside = list(value.values()) if isinstance(value, Mapping) else ()
    if isinstance(value, list | tuple | set | frozenset):
        inside = value
    elif hasattr(value, "__dict__") and not callable(value):
        inside = vars(value).values()
    for each in inside:
        found = weigh(each, found + 1)
    return found + 1


def copied(value: Any) -> Any:
    """Return a copy that shares no numbers; tensors leave their graph."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if type(value) is dict:
        return {name: copied(each) for name, each in value.items()}
    return type(value)(map(copied, value)) if type(value) in (list, tuple) else copy.deepcopy(value)


def moves(given: Given, function: FunctionType) -> Iterator[Given]:
    """Yield calls with one argument moved or left out, then with fewer rows in all arrays."""
    compiled = reaches_loops(function)
    parameters = inspect.signature(function, follow_wrapped=False).parameters
    for name, value in given.items():
        rest = {each: it for each, it in given.items() if each != name}
        if parameters[name].default is not inspect.Parameter.empty:
            yield copied(rest)
        for other in others(value, compiled):
            yield {**copied(rest), name: other}
    for rows in () if compiled else (slice(1), slice(0), None):
        fewer = {name: fewer_rows(each, rows) for name, each in given.items()}
        if any(fewer[name] is not given[name] for name in given):
            yield copied(fewer)


def reaches_loops(function: FunctionType, depth: int = 4) -> bool:
    """Whether a function names compiled loops, or one that does: they check no bounds, flags alone move."""
    named = [function.__globals__.get(name) for name in function.__code__.co_names]
    if any(type(each).__name__ == "CPUDispatcher" for each in named):
        return True
    return depth > 0 and any(reaches_loops(each, depth - 1) for each in named if type(each) is FunctionType)


def fewer_rows(value: Any, rows: slice | None) -> Any:
    """Return the first rows of an array, or of all arrays in a record; None turns them round."""
    if isinstance(value, ARRAY) and value.ndim:
        turned = value.flip(0) if isinstance(value, torch.Tensor) else value[::-1]
        return turned if rows is None else value[rows]
    return replaced(value, {n: fewer_rows(each, rows) for n, each in arrays_of(value).items()})


def arrays_of(record: Any) -> Given:
    """Return the arrays of a dataclass by name."""
    known = dataclasses.is_dataclass(record) and not isinstance(record, type)
    names = [each.name for each in dataclasses.fields(record) if each.init] if known else []
    return {name: each for name in names if isinstance(each := getattr(record, name, None), ARRAY)}


def replaced(record: Any, parts: Given) -> Any:
    """Return a record with other parts, or itself where it refuses them."""
    try:
        return dataclasses.replace(record, **parts) if parts else record
    except Exception:  # it checks itself
        return record


def others(value: Any, compiled: bool) -> Iterator[Any]:
    """Yield other values of an argument."""
    if isinstance(value, bool | np.bool_):
        yield not value
    elif compiled:
        return
    elif isinstance(value, int | np.integer):
        yield from (each for each in (0, 1, int(value) + 1, -1) if each != value)
    elif isinstance(value, float | np.floating):
        beside = (0.0, 1.0, -1.0, float(value) / 2 + 0.25, math.nan, math.inf)
        yield from (each for each in beside if each != value)
    elif isinstance(value, torch.Tensor):
        for x in at_edges((value.float() if value.dtype == torch.bfloat16 else value).detach().numpy()):
            yield torch.from_numpy(x).requires_grad_(value.requires_grad)
    elif isinstance(value, np.ndarray):
        yield from at_edges(value)
    elif isinstance(value, str):
        yield ""
    elif type(value) in (list, tuple, dict):
        items = list(value.items()) if isinstance(value, dict) else value
        cuts = (items[:0], items[:1], items[::-1], items[1:])
        yield from (copied(type(value)(few)) for few in (cuts if len(items) > 1 else cuts[:1]))
    for name, part in arrays_of(value).items():
        for other in others(part, compiled):
            if (moved := replaced(copied(value), {name: other})) is not value:
                yield moved


def at_edges(x: np.ndarray) -> Iterator[np.ndarray]:
    """Yield arrays of the same shape and type."""
    if not x.size or x.dtype.kind not in "biuf":
        return
    yield from (np.zeros_like(x), np.ravel(x)[::-1].reshape(x.shape).copy(), np.full_like(x, x.flat[-1]))
    if x.dtype.kind == "b":
        yield from (np.ones_like(x), ~x)
    elif x.dtype.kind == "f":
        yield -x
        for value in (math.nan, math.inf):
            moved = x.copy()
            moved.flat[0] = value
            yield moved


class AtEdges(Recorder):
    """Keep calls while tests run; make them again at the end."""

    def __init__(self) -> None:
        super().__init__()
        self._edges = Edges()

    def __call__(self, frame: FrameType, event: str, value: object) -> None:
        """Take what `sys.setprofile` tells of a call."""
        if event == "call" and (name := self.name_of(frame.f_code)) and not name.startswith(LEFT_OUT):
            self._edges.keep(frame)

    def pytest_sessionfinish(self) -> None:
        """Write a row for every function that is alive."""
        self.rows = {}
        sys.addaudithook(self._edges.hook)
        alive, names = functions(), {code: self.name_of(code) for code in self._edges.kept}
        for code in sorted(alive.keys() & names, key=lambda each: (names[each], each.co_firstlineno)):
            row = self.rows[names[code]] = Row()
            for value in self._edges.again(alive[code]):
                row.take(value)
        super().pytest_sessionfinish()


def pytest_configure(config: pytest.Config) -> None:
    """Start to watch."""
    config.pluginmanager.register(AtEdges(), "edges-recorder")
