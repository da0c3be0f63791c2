"""Computed tables whose rows are replications: every arm meets the same seeds, and all is repeated on fresh
ones.

A claim on such a table looks at both runs and holds when it holds in each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import pandas as pd

from analysis.comparisons import Arm, arm, paired
from envs.arrays import Floats

RUNS: Mapping[str, int] = MappingProxyType({"first": 0, "replication": 1_000_000})
"""Name of a run: its first seed."""
Seeds = tuple[int, ...]


def repeated(rows: Callable[[Seeds], pd.DataFrame], seeds: int) -> pd.DataFrame:
    """Return rows(seeds) of both runs, with a column `run` in front; rows have a column `seed`."""
    frames = []
    for run, start in RUNS.items():
        frame = rows(tuple(range(start, start + seeds)))
        frame.insert(0, "run", run)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def columns(seeds: Seeds, **values: object) -> pd.DataFrame:
    """Return a frame with a row per seed: numbers, or arrays [R]."""
    return pd.DataFrame({"seed": seeds, **values})


def difference(table: pd.DataFrame, value: str, first: Arm, second: Arm) -> dict[str, Floats]:
    """Return a column of the first arm less that of the second, seed by seed, for each run."""
    return {run: paired(table[table["run"] == run], value, first, second) for run in RUNS}


def differences(
    table: pd.DataFrame, value: str, first: Arm, second: Arm, dial: str, levels: Sequence[object] = ()
) -> dict[str, Floats]:
    """Return `difference` at every level of a column, or at the given ones, for each run."""
    found: dict[str, Floats] = {}
    for level in levels or sorted(set(table[dial])):
        here = difference(table, value, {**first, dial: level}, {**second, dial: level})
        found |= {f"{dial} {level}, {run}": x_N for run, x_N in here.items()}
    return found


def level(table: pd.DataFrame, value: str, where: Arm) -> dict[str, Floats]:
    """Return a column of one arm, seed by seed, for each run."""
    return {run: arm(table[table["run"] == run], value, where).to_numpy(dtype=float) for run in RUNS}


def slopes(table: pd.DataFrame, x: str, y: str, where: Arm) -> dict[str, Floats]:
    """Return the least-squares slope of y over x within each seed of an arm, for each run."""
    for column, wanted in where.items():
        table = table[table[column] == wanted]
    found = {}
    for run in RUNS:
        wide = table[table["run"] == run].pivot(index="seed", columns=x, values=y)
        place_K = wide.columns.to_numpy(dtype=float)
        centered_K = place_K - place_K.mean()
        found[run] = wide.to_numpy(dtype=float) @ centered_K / (centered_K @ centered_K)
    return found
