"""Effective weights derived by hand, one row per objective. Imports none of our code.

WEIGHTS[name](row, rows) -> w_t = -dL/dlogp under the token-sum convention, for one sequence (a
fixtures.Row) of a batch (all rows). F1 lists published or hand-worked values on fixture F1, where
A = +1 with ratios (1.5, 0.5) and A = -1 with (0.5, 1.25, 4.0): (objective, hyperparameters, w/A of the
first sequence, w/A of the second). CASES lists rows with hyperparameters other than the defaults:
(objective, hyperparameters, row). Every module of this folder adds its WEIGHTS and F1, and CASES if any.
"""

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

WEIGHTS: dict[str, Callable[..., Any]] = {}
F1_ROWS: list[tuple[str, dict[str, Any], tuple[float, ...], tuple[float, ...]]] = []
CASES: list[tuple[str, dict[str, Any], Callable[..., Any]]] = []

for _module in pkgutil.iter_modules(__path__):
    _rows = importlib.import_module(f"{__name__}.{_module.name}")
    _twice = set(WEIGHTS) & set(_rows.WEIGHTS)
    assert not _twice, f"{_twice} have two rows"
    WEIGHTS |= _rows.WEIGHTS
    F1_ROWS += _rows.F1
    CASES += getattr(_rows, "CASES", [])
