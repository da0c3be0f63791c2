"""When a run learned and then lost it: final and best accuracy, smallest ESS, collapse, and when."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.intervals import median_interval, wilson_interval
from testbed.config.run import Run
from testbed.errors import UserError

ACCURACY = "accuracy"
ESS = "rollout_corr/ess_kish_sequence_raw"
ESS_FLOOR = "rollout_corr/ess_floor"
DIVERGED = "diverged"

WINDOW = 3
""""final" and "best" are means of so many consecutive logged rows, lest one lucky evaluation be a peak."""
RISE = 0.2
"""A peak counts only when it is this far above the first logged row: what was not learned cannot be lost."""
KEPT = 0.5
"""A run collapsed when less than this share of its best accuracy is left at the end."""

CELL = ("task", "recipe", "lag", "seed")
"""Fields that name a cell of a condensed table; those that the table has are used."""


def cell_fields(frame: pd.DataFrame) -> list[str]:
    """Return the fields that tell the table's cells apart: CELL, and every other field of Run that varies."""
    others = [item.name for item in dataclasses.fields(Run) if item.name not in CELL]
    varying = [name for name in others if name in frame and frame[name].nunique(dropna=False) > 1]
    return [name for name in CELL if name in frame] + varying


def need(frame: pd.DataFrame, columns: Sequence[str]) -> None:
    """Raise UserError naming the columns that are missing, or say that the table is empty."""
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        known = ", ".join(map(str, frame.columns))
        raise UserError(f"The table lacks the column(s) {', '.join(missing)}. It has: {known}.")
    if frame.empty:
        raise UserError("The table has no rows; run the sweep first, or check the folder.")


def smooth(accuracy_L: NDArray[np.float64], window: int = WINDOW) -> NDArray[np.float64]:
    """Return means of `window` consecutive logged rows; NaN (a diverged run) counts as accuracy 0.

    Fewer rows than the window give one mean over all of them.
    """
    filled_L = np.nan_to_num(accuracy_L, nan=0.0)
    width = min(window, filled_L.size)
    return np.lib.stride_tricks.sliding_window_view(filled_L, width).mean(axis=-1)


def outcome(
    rows: pd.DataFrame, *, window: int = WINDOW, rise: float = RISE, kept: float = KEPT
) -> dict[str, float]:
    """Return what became of one cell: final, best, start, ess_min, collapsed, diverged, peak_step, ….

    best = largest and final = last mean of `window` logged accuracies. collapsed: best - start >= rise and
    final < kept * best. peak_step is the last step of the best window; collapse_step the first step after it
    from which every window stays below kept * best (NaN when the run did not collapse). diverged: a loss or
    gradient was not finite, so the weights stood still from there; that is another outcome and is counted on
    its own.
    """
    rows = rows.sort_values("step")
    step_L = rows["step"].to_numpy(dtype=np.float64)
    smooth_W = smooth(rows[ACCURACY].to_numpy(dtype=np.float64), window)
    step_W = step_L[step_L.size - smooth_W.size :]
    start = float(np.nan_to_num(rows[ACCURACY].iloc[0]))
    peak = int(smooth_W.argmax())
    best, final = float(smooth_W[peak]), float(smooth_W[-1])
    fell = best - start >= rise and final < kept * best
    diverged = DIVERGED in rows and bool((rows[DIVERGED] != 0).any())
    above = np.flatnonzero(smooth_W >= kept * best)
    return {
        "final": final,
        "best": best,
        "start": start,
        "ess_min": float(rows[ESS].min()) if ESS in rows else np.nan,
        "ess_floor": float(rows[ESS_FLOOR].min()) if ESS_FLOOR in rows else np.nan,
        "collapsed": float(fell),
        "diverged": float(diverged),
        "peak_step": float(step_W[peak]),
        "collapse_step": float(step_W[above[-1] + 1]) if fell else np.nan,
    }


def cells(
    frame: pd.DataFrame, *, window: int = WINDOW, rise: float = RISE, kept: float = KEPT
) -> pd.DataFrame:
    """Return one row per cell: the fields that name it and everything `outcome` says about it."""
    need(frame, ["recipe", "lag", "seed", "step", ACCURACY])
    names = cell_fields(frame)
    if frame.duplicated([*names, "step"]).any():
        raise UserError(
            f"Two rows share {', '.join(names)} and step, so the sweep varies something else too; "
            "select the rows of one setting first."
        )
    rows = []
    for key, group in frame.groupby(names, sort=True):
        found = outcome(group, window=window, rise=rise, kept=kept)
        rows.append({**dict(zip(names, key, strict=True)), **found})
    return pd.DataFrame(rows)


def summary_table(frame: pd.DataFrame, *, level: float = 0.95) -> pd.DataFrame:
    """Return one row per setting (task, recipe, lag and what else varies), over seeds: what the demo prints.

    seeds, final (median, with final_low and final_high of `median_interval`: the range for fewer than 6
    seeds), best (median), ess_min (smallest over steps and seeds; share of N, cannot read below ess_floor =
    1/N), collapsed (share of seeds, with collapsed_low and collapsed_high of a Wilson interval), diverged
    (share).
    """
    found = cells(frame)
    names = [name for name in cell_fields(frame) if name != "seed"]
    rows = []
    for key, group in found.groupby(names, sort=True):
        final = median_interval(group["final"].to_numpy(), level)
        share = wilson_interval(int(group["collapsed"].sum()), len(group), level)
        rows.append(
            {
                **dict(zip(names, key, strict=True)),
                "seeds": len(group),
                "final": final.center,
                "final_low": final.low,
                "final_high": final.high,
                "best": float(group["best"].median()),
                "ess_min": float(group["ess_min"].min()),
                "ess_floor": float(group["ess_floor"].min()),
                "collapsed": share.center,
                "collapsed_low": share.low,
                "collapsed_high": share.high,
                "diverged": float(group["diverged"].mean()),
            }
        )
    return pd.DataFrame(rows)
