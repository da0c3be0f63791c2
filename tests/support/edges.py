"""A pytest plugin: call functions of the areas again, at edges of what tests gave them, and write rows down.

Two calls of a function are kept, the first and the largest of those that follow. Afterwards one argument is
moved at a time: a number to 0, 1 and beside itself, a flag to its opposite, an option to its default, values
to zeros, ties, their negative, NaN and infinity, a mask to all and none, a sequence to nothing, to its first
item and round. Arrays also lose rows together. Nothing is written, and no process starts meanwhile.
"""

import copy
import dataclasses
import functools
import gc
import inspect
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from support.results import ITEMS, Recorder, Row, fields

from testbed.errors import UserError
from testbed.policies.toy import compiled

SEEN, MOST, SIZE = 4, 24, 2000
"""Calls that are looked at, moved calls of one that is kept, and numbers and objects in its arguments."""
FORBIDDEN = (
    "subprocess", "socket", "shutil", "signal", "_thread", "tempfile", "fcntl", "os.remove", "os.rename",
    "os.mkdir", "os.rmdir", "os.kill", "os.fork", "os.exec", "os.posix", "os.putenv", "os.link", "os.chdir",
)  # fmt: skip
LEFT_OUT = (
    "analysis/commands/", "testbed/cli/", "testbed/conformance/installed.py", "envs/tokens/reasoning_gym.py",
    "testbed/execution/cost.py", "testbed/policies/warm_start.py", "cache.py generate_recomputed",
    "training/loop.py train", "sample_in_flight", "models.py discrete_choice", "tabular_offline.py iql",
    "analysis/judging/seed_power.py bet_seeds", "analysis/kernels/constrained.py primal_dual",
    "testbed/critics/fitted.py", "worlds/tokens.py TokenRuns.", "TwoRoles.sample",
    "retries.py Retries.rollout", "Behavior.sample", "one_continuous_action.py BumpBandit.log",
    "testbed/results/user_cache.py", "trajectory_sums.py _weigh", "testbed/logs/ratio_checks.py _middles",
    "progress.py", "gym_env.py", "FiniteMDP.start", "weight_anchors.py Version.start", "manifest.py entry",
    "manifest.py _line", "linear_td.py misalignment", "execution/executors.py", "tokens/verifiers.py _line",
    "analysis/judging/gates.py _table", "analysis/judging/gates.py base_data_of",
    "analysis/tables/condensed.py load_tables", "analysis/tables/remeasured.py measure",
    "magic.py simplex_minimum", "value_learning.py linear_td",
)  # fmt: skip
"""What takes long at an edge, or depends on old memory, on rounding, or on what is committed."""
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
        varied = code.co_flags & inspect.CO_VARARGS or "<locals>" in code.co_qualname
        if self._seen[code] > SEEN or varied:  # closures are gone afterwards
            return
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if code.co_flags & inspect.CO_GENERATOR and frame.f_locals.keys() - set(names):  # it goes on
            return
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
            try:
                every = list(moves(given, function))
            except Exception:  # a part of an error has no copy
                continue
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
            value = list(islice(value, ITEMS)) if inspect.isgenerator(value) else value
            state = [fields(given["self"])] if value is None and "self" in given else []
            held = [each for each in given.values() if isinstance(each, list | dict | ARRAY)]
            return [value, *state, *held]
        except (Exception, SystemExit) as error:
            return [f"{type(error).__name__} {error if isinstance(error, UserError) else ''}"]
        finally:
            self.closed = False


def interpret_loops() -> None:
    """Put plain functions in the place of compiled loops, which check no bounds."""
    compiled.serves = lambda _: False
    ours = [each for name, each in sys.modules.items() if name.startswith(("testbed.", "envs.", "analysis."))]
    for module in ours:
        for name, loop in list(vars(module).items()):
            if plain := getattr(loop, "py_func", None):
                setattr(module, name, plain)


def finite_svd() -> None:
    """Refuse what is not finite where LAPACK would not return."""
    for module in (np.linalg, sys.modules[np.linalg.svd.__wrapped__.__globals__["__name__"]]):
        for name in ("svd", "lstsq"):
            setattr(module, name, functools.partial(_of_finite, getattr(module, name)))


def _of_finite(function: Callable[..., Any], matrix: Any, *others: Any, **named: Any) -> Any:
    return function(np.asarray_chkfinite(matrix), *others, **named)


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
    parameters = inspect.signature(function, follow_wrapped=False).parameters
    for name, value in given.items():
        rest = {each: it for each, it in given.items() if each != name}
        if parameters[name].default is not inspect.Parameter.empty:
            yield copied(rest)
        for other in others(value):
            yield {**copied(rest), name: other}
    for rows in (slice(1), slice(0), None):
        fewer = {name: fewer_rows(each, rows) for name, each in given.items()}
        if any(fewer[name] is not given[name] for name in given):
            yield copied(fewer)


def fewer_rows(value: Any, rows: slice | None) -> Any:
    """Return the first rows of an array, or of all arrays in a record; None turns them round."""
    if isinstance(value, ARRAY) and value.ndim:
        turned = value.flip(0) if isinstance(value, torch.Tensor) else value[::-1]
        return turned if rows is None else value[rows]
    return replaced(value, {n: fewer_rows(each, rows) for n, each in parts_of(value).items()})


def parts_of(record: Any, kind: Any = ARRAY) -> Given:
    """Return the arrays, or parts of another kind, of a dataclass by name."""
    known = dataclasses.is_dataclass(record) and not isinstance(record, type)
    names = [each.name for each in dataclasses.fields(record) if each.init] if known else []
    return {name: each for name in names if isinstance(each := getattr(record, name, None), kind)}


def replaced(record: Any, parts: Given) -> Any:
    """Return a record with other parts, or itself where it refuses them."""
    try:
        return dataclasses.replace(record, **parts) if parts else record
    except Exception:  # it checks itself
        return record


def others(value: Any) -> Iterator[Any]:
    """Yield other values of an argument."""
    if isinstance(value, bool | np.bool_):
        yield not value
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
    for name, part in parts_of(value, ARRAY | bool | int | float).items():
        few = None if isinstance(part, ARRAY) else 2
        for other in islice(others(part), few):
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

    def watcher(self) -> Callable[[FrameType, str, object], None]:
        """Return what keeps calls at every event of `sys.setprofile`."""
        names, keep = self._name, self._edges.keep

        def watch(frame: FrameType, event: str, value: object) -> None:
            if event == "call" and names.get(frame.f_code, "new") and self.name_of(frame.f_code):
                keep(frame)

        return watch

    def _named(self, code: CodeType) -> str:
        name = super()._named(code)
        return "" if any(part in name for part in LEFT_OUT) else name

    def pytest_sessionfinish(self) -> None:
        """Write a row for every function that is alive."""
        self.rows = {}
        interpret_loops()
        finite_svd()
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
