"""Tables made twice: a first run, and a replication on seeds that nothing was chosen on; claims demand both.

A table has the columns `run` and `seed`, and cells of one seed share their key, so that arms are paired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.comparisons import Arm, arm, paired_by
from analysis.load import Table
from envs.arrays import Floats
from testbed.errors import UserError
from testbed.rng import keys

RUNS = ("first", "replication")
"""Settings and margins were chosen on the run "pilot", which is in no table."""


def made_twice(
    name: str,
    make: Callable[[NDArray[np.uint64]], pd.DataFrame],
    seeds: int,
    about: Mapping[str, Any] | None = None,
) -> Table:
    """Return the rows of make(key_R) for every run, R = seeds keys that no other run or experiment has."""
    frames = []
    for run in RUNS:
        frame = make(keys(tuple(range(seeds)), f"{name}/{run}"))
        frame.insert(0, "run", run)
        frames.append(frame)
    return Table.of(name, pd.concat(frames, ignore_index=True), {"seeds": seeds, **(about or {})})


def rows(key_R: NDArray[np.uint64], **levels: Iterable[Any]) -> tuple[pd.DataFrame, NDArray[np.uint64]]:
    """Return a row for every combination of levels and every seed 0 … R - 1, and the rows' keys."""
    levels = {**levels, "seed": range(len(key_R))}
    frame = pd.MultiIndex.from_product(list(levels.values()), names=list(levels)).to_frame(index=False)
    return frame, key_R[frame["seed"].to_numpy()]


def in_both(table: pd.DataFrame, value: str, first: Arm, second: Arm) -> dict[str, Floats]:
    """Return `paired` for each run; `must_exceed` and its like then demand it of each on its own.

    Raises UserError when a run has no pair: one that is missing must not pass for one that agrees.
    """
    return _both(paired_by(table, value, first, second, "run"), f"pairs of {dict(first)} and {dict(second)}")


def levels_in_both(table: pd.DataFrame, value: str, where: Arm) -> dict[str, Floats]:
    """Return a column of one arm's rows, for each run; UserError when a run has none."""
    return _both({run: arm(table, value, {**where, "run": run}).to_numpy(np.float64) for run in RUNS},
                 f"rows with {dict(where)}")  # fmt: skip


def _both(found: Mapping[str, Floats], what: str) -> dict[str, Floats]:
    for run in RUNS:
        if run not in found or not found[run].size:
            raise UserError(
                f"Run '{run}' has no {what}. Make the table again: testbed experiments table NAME"
            )
    return {run: found[run] for run in RUNS}
