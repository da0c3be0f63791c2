"""A user's recipe beside the committed table: its arm, its rivals and its rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from analysis.arena.arms import Arm, grid_of
from analysis.arena.table import summary
from analysis.arena.tasks import refuse_without_headroom
from testbed.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

DRAWS = 2000
"""Resamples of seeds behind the interval of a rank."""


def arm_of(recipe: str, knob: str) -> Arm:
    """Return the arm of a recipe and a knob written NAME=VALUE,VALUE.

    Raises UserError for an unknown recipe or knob, fewer than two values, and values that are no numbers.
    """
    name, sign, text = knob.partition("=")
    if not name or not sign:
        raise UserError(f"Recipe '{recipe}' has no knob grid; give one, as in --knob width=.1,.3,1.")
    try:
        values = tuple(float(value) for value in text.split(","))
    except ValueError:
        raise UserError(f"Knob '{knob}' has values that are no numbers, expected {name}=.1,.3,1.") from None
    from testbed.recipes import recipe as recipes

    arm = Arm(recipe, recipe, grid_of(name, values))
    for args in arm.knob:
        recipes[recipe].bind(**dict(args))
    return arm


def rivals(frame: pd.DataFrame, task: str, lag: int) -> pd.DataFrame:
    """Return the table's rows of a task and lag; raise UserError without any, or without headroom."""
    rows = frame[(frame["task"] == task) & (frame["lag"] == lag)]
    if rows.empty:
        had = ", ".join(f"{a} at lag {b}" for a, b in frame[["task", "lag"]].drop_duplicates().to_numpy())
        raise UserError(f"The committed table has no runs of '{task}' at lag {lag}. It has {had}.")
    fresh = frame[(frame["task"] == task) & (frame["lag"] == 0) & (frame["arm"] == "grpo")]["final"]
    if not fresh.empty:
        refuse_without_headroom(task, float(fresh.mean()))
    return rows


def ranked(committed: pd.DataFrame, rows: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """Return the arm's row of `summary` with rank, rank_low and rank_high among the committed arms.

    rank: 1 + number of arms with a larger mean final. The interval of 95 % is over resampled seeds, the same
    for all arms; `seed` names the resamples.
    """
    import pandas as pd

    both = pd.concat([committed, rows], ignore_index=True)
    arm = rows["arm"].iloc[0]
    if arm in set(committed["arm"]):
        raise UserError(
            f"Arm '{arm}' is in the committed table already; expected a recipe under another name."
        )
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
    found = summary(both)
    kept = ["arm", "rate", "knob", "final", "gain", "gain_low", "gain_high", "sensitivity"]
    row = found[found["arm"] == arm][kept]
    return row.assign(rank=rank(value_AN.mean(1)), rank_low=int(low), rank_high=int(high), of=len(value_AN))
