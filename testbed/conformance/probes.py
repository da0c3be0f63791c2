"""Candidate hyperparameters of a loss: constants in its source, ratios at which its weight bends or jumps."""

import ast
import inspect
import math
import textwrap
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from envs.arrays import Floats
from testbed.conformance.batches import Row, Token, tensors
from testbed.conformance.calling import call
from testbed.conformance.signature import Binding
from testbed.errors import UserError

GRID = np.concatenate([-np.geomspace(3.2, 1e-4, 90), np.geomspace(1e-4, 3.2, 90)])
"""Log-ratios at which a single token's weight is probed."""
STEP = 2e-6
"""Distance for a numerical slope."""
HALVINGS = 26


def bends(binding: Binding) -> list[float]:
    """Return the ratios at which the weight of a one-token response bends or jumps, for both signs of A.

    Ratios are pi/anchor at anchor = mu and, if mu is given too, anchor/mu at pi = anchor.
    """
    found: set[float] = set()
    for adv in (1.0, -1.0):
        makers = [lambda x, adv=adv: Row((Token(float(x)),), adv, 0.5)]
        if not binding.one_old:
            makers.append(lambda x, adv=adv: Row((Token(0.0, float(x)),), adv, 0.5))
        for make in makers:
            try:
                found |= {math.exp(x) for x in _bends_of(binding, make)}
            except UserError:
                continue
    return sorted(found)


def _bends_of(binding: Binding, make: Callable[[float], Row]) -> list[float]:
    def signature(points: Floats) -> list[tuple[bool, int]]:
        rows = [make(float(x)) for x in np.concatenate([points, points + STEP])]
        logp, batch = tensors(rows)
        weight = call(binding, logp, batch).weight_BT[:, 0].abs().numpy()
        here, there = np.split(weight, 2)
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = (np.log(there) - np.log(here)) / STEP
        nearest = np.where(np.isfinite(slope), np.round(slope, 2), 99.0)
        nearest = np.where((here == 0) & (there == 0), 0.0, nearest)
        return [(bool(w == 0), round(100 * float(s))) for w, s in zip(here, nearest, strict=True)]

    shapes = signature(GRID)
    low = [float(GRID[i]) for i in range(len(GRID) - 1) if shapes[i] != shapes[i + 1]]
    high = [float(GRID[i + 1]) for i in range(len(GRID) - 1) if shapes[i] != shapes[i + 1]]
    if not low or len(low) > 12:  # a smooth weight has many slopes
        return []
    left, right = np.array(low), np.array(high)
    start = signature(left)
    for _ in range(HALVINGS):
        middle = (left + right) / 2
        same = np.array([a == b for a, b in zip(signature(middle), start, strict=True)])
        left, right = np.where(same, middle, left), np.where(same, right, middle)
    return [float(x) + STEP for x in (left + right) / 2]  # the farther end of the slope meets the bend first


def constants(function: object) -> list[float]:
    """Return the numbers in a function's source, defaults, closure and named globals."""
    found: set[float] = set()
    while hasattr(function, "func"):  # functools.partial
        found |= set(_numbers(getattr(function, "keywords", {}).values()))
        function = function.func
    code = getattr(function, "__code__", None)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))  # type: ignore[arg-type]
    except (OSError, TypeError, SyntaxError, ValueError):
        tree = ast.Module([], [])
    found |= set(_numbers(node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)))
    if code is not None:
        spaces = getattr(function, "__globals__", {})
        found |= set(_numbers(spaces[name] for name in code.co_names if name in spaces))
        cells = getattr(function, "__closure__", None) or ()
        found |= set(_numbers(cell.cell_contents for cell in cells))
        found |= set(_numbers(code.co_consts))
    return sorted(found)


def _numbers(values: Iterable[object]) -> list[float]:
    numbers = (v for v in values if isinstance(v, int | float) and not isinstance(v, bool))
    return [float(v) for v in numbers if math.isfinite(v)]


def candidates(numbers: Sequence[float], ratios: Sequence[float]) -> list[float]:
    """Return the hyperparameters that such numbers may be: bounds, distances from 1, logs, inverses."""
    found = {0.0, math.inf}
    for x in numbers:
        found |= {x, 1 - x, x - 1}
        if x > 0:
            found |= {1 / x, math.log(x)}
    for x in ratios:
        found |= {float(f"{v:.5g}") for v in (x, 1 - x, x - 1, 1 / x, math.log(x), -math.log(x))}
    return sorted((v for v in found if v > -100), key=lambda v: (len(f"{abs(v):g}"), v))
