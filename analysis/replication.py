"""Computed tables whose rows are replications: every arm meets the same seeds, and all is repeated on fresh
ones.

A claim on such a table looks at both runs and holds when it holds in each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.comparisons import Arm, arm, paired
from analysis.load import Table
from envs.arrays import Floats
from testbed.rng import keys

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


def made_twice(
    name: str,
    make: Callable[[NDArray[np.uint64]], pd.DataFrame],
    seeds: int,
    about: Mapping[str, Any] | None = None,
) -> Table:
    """Return the rows of make(key_R) for both runs: `seeds` keys that no other run or experiment has.

    Settings and margins may be chosen on other keys, a pilot's, that are in no table.
    """
    frames = []
    for run in RUNS:
        frame = make(keys(tuple(range(seeds)), f"{name}/{run}"))
        frame.insert(0, "run", run)
        frames.append(frame)
    return Table.of(name, pd.concat(frames, ignore_index=True), {"seeds": seeds, **(about or {})})


def combinations(
    key_R: NDArray[np.uint64], **levels: Iterable[Any]
) -> tuple[pd.DataFrame, NDArray[np.uint64]]:
    """Return a row for every combination of levels and every seed 0 … R - 1, and the rows' keys.

    Cells of one seed share their key, so that arms are paired.
    """
    every = {**levels, "seed": range(len(key_R))}
    frame = pd.MultiIndex.from_product(list(every.values()), names=list(every)).to_frame(index=False)
    return frame, key_R[frame["seed"].to_numpy()]


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
