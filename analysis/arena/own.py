"""A user's recipe beside the committed table: its arm, its rivals and its rank."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.arena.arena_queue import run_queue
from analysis.arena.arms import Arm, grid_of
from analysis.arena.halving import FULL, Effort
from analysis.arena.table import fresh, held, summary
from analysis.arena.tasks import NEAR, PIPELINE, refuse_without_headroom
from analysis.tables.committed import SWEEP
from testbed.config.run import Run
from testbed.errors import UserError
from testbed.results import store
from testbed.user_files import in_a_file, pin

DRAWS = 2000
"""Resamples of seeds behind the interval of a rank."""


def arm_of(recipe: str, knob: str) -> Arm:
    """Return the arm of a recipe and a knob written NAME=VALUE,VALUE, its values in ascending order.

    A recipe in a file is identified by the file's digest, so an edited file is run again; it is called
    file.py:function.

    Raises UserError for an unknown recipe or knob, fewer than two values, a value given twice, and values
    that are not finite numbers.
    """
    name, sign, text = knob.partition("=")
    if not name or not sign:
        raise UserError(f"Recipe '{recipe}' has no knob grid; give one, as in --knob width=.1,.3,1.")
    from testbed.recipes import recipe as recipes

    pinned = pin(recipe)
    # A file is called without its folder, a registered recipe by its name.
    called = Path(pinned.partition("#")[0]).name if in_a_file(pinned) else pinned
    arm = Arm(called, pinned, grid_of(name, _values(knob, name, text)))
    for args in arm.knob:
        recipes[pinned].bind(**dict(args))
    return arm


def _values(knob: str, name: str, text: str) -> tuple[float, ...]:
    try:
        values = sorted(float(value) for value in text.split(","))
    except ValueError:
        raise UserError(f"Knob '{knob}' has values that are not numbers, expected {name}=.1,.3,1.") from None
    if not all(map(math.isfinite, values)) or len(set(values)) < len(values):
        raise UserError(f"Knob '{knob}' needs finite values that differ, expected {name}=.1,.3,1.")
    return tuple(int(value) if value.is_integer() else value for value in values)


def rivals(frame: pd.DataFrame, task: str, lag: int, arm: str) -> pd.DataFrame:
    """Return the table's rows of a task and lag, for comparison with `arm`.

    Raises UserError if there are none, the task has no headroom, or an arm has that name.
    """
    if lag == PIPELINE:
        raise UserError(f"Nothing is tuned on a pipeline's ages. Add your recipe with --lag {NEAR}.")
    rows = frame[(frame["task"] == task) & (frame["lag"] == lag)]
    if rows.empty:
        raise UserError(f"The committed table has no runs of '{task}' at lag {lag}. It has {held(frame)}.")
    finals = fresh(frame)
    if task in finals:
        refuse_without_headroom(task, float(finals[task]))
    if arm in set(rows["arm"]):
        raise UserError(
            f"'{arm}' is in the committed table already (testbed arena show --task {task} --lag {lag}); "
            "expected a recipe under another name."
        )
    return rows


def trained(
    name: str, base: Run, arm: Arm, lag: int, folder: Path, say: Callable[[str], None], effort: Effort = FULL
) -> pd.DataFrame:
    """Tune the arm, run its finals and return their rows; folders of sweeps are named by text, grid and
    effort.

    Raises UserError with the first failure's message where a run failed.
    """
    digest = hashlib.sha256(repr((arm.recipe, arm.knob, effort)).encode()).hexdigest()[:12]
    place = folder / digest
    try:
        return run_queue(name, base, [arm], lag, place, say, effort=effort)
    except (UserError, KeyError) as error:  # a failed run has no rows
        failures = [each for path in place.rglob(SWEEP) for each in store.status(path.parent).failures]
        if not failures:
            raise
        raise UserError(f"A run of {arm.name} failed: {failures[0].message}") from error


def joined(committed: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return `summary` of the committed arms and the arm of `rows`."""
    return summary(pd.concat([committed, rows], ignore_index=True))


def ranked(committed: pd.DataFrame, rows: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """Return the arm's row of `summary` with rank, rank_low and rank_high among the committed arms.

    rank: 1 + number of arms with a larger mean final. The interval of 95 % resamples seeds, the same for all
    arms; `seed` identifies the resamples.
    """
    found = joined(committed, rows)
    arm = rows["arm"].iloc[0]
    both = pd.concat([committed, rows], ignore_index=True)
    final_AN = both.pivot(index="arm", columns="seed", values="final").dropna(axis=1)
    mine, value_AN = final_AN.index.get_loc(arm), final_AN.to_numpy(dtype=float)
    if not value_AN.size:
        raise UserError(
            f"Arm '{arm}' shares no seed with the committed table; run it with the table's seeds."
        )

    def rank(mean_A: np.ndarray) -> int:
        return int((mean_A > mean_A[mine]).sum()) + 1

    draws = np.random.default_rng(seed).integers(0, value_AN.shape[1], (DRAWS, value_AN.shape[1]))
    low, high = np.quantile([rank(value_AN[:, draw].mean(1)) for draw in draws], (0.025, 0.975))
    kept = ["arm", "rate", "knob", "final", "gain", "gain_low", "gain_high", "sensitivity"]
    row: pd.DataFrame = found[found["arm"] == arm][kept]
    return row.assign(rank=rank(value_AN.mean(1)), rank_low=int(low), rank_high=int(high), of=len(value_AN))
