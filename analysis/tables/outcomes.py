"""Outcomes of a run of pi on held-out prompts, defined beforehand (docs/outcomes.md)."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.judging.seed_intervals import median_interval, wilson_interval
from testbed.config.run import Run
from testbed.errors import UserError

ACCURACY = "accuracy"
ESS = "rollout_corr/ess_kish_sequence_raw"
ESS_FLOOR = "rollout_corr/ess_floor"
DIVERGED = "diverged"
ENTROPY = "val/entropy"
LENGTH = "val/response_length"
ROLLOUTS = "rollouts"

WINDOW = 3
""""final" and "best" are means of so many consecutive logged rows: one lucky evaluation is no peak."""
RISE = 0.2
"""A peak counts only if it is this far above the first logged row: only learned accuracy can be lost."""
KEPT = 0.5
"""A run collapsed if it ends with less than this share of its best accuracy."""

ENTROPY_KEPT = 0.1
"""The entropy collapsed if it ends with less than this share of its first value, …"""
SOLVED = 0.9
"""… and the final accuracy is below this: a policy that knows the answer needs no entropy."""
LENGTH_KEPT = 0.5
"""The length collapsed if it ends with less than this share of its first value."""
THRESHOLD = 0.8
"""Default accuracy of `steps_to` and `rollouts_to`."""

READS = {
    **dict.fromkeys(("entropy_collapsed", "entropy_collapse_step"), (ACCURACY, ENTROPY)),
    **dict.fromkeys(("length_collapsed", "length_collapse_step"), (LENGTH,)),
    **dict.fromkeys(("diverged", "diverged_step"), (DIVERGED,)),
    "rollouts_to": (ACCURACY, ROLLOUTS),
}
"""Columns of outcomes that read more than the accuracy."""

CELL = ("task", "recipe", "lag", "seed")
"""Fields that identify a cell of a condensed table; those in the table are used."""


def cell_fields(frame: pd.DataFrame) -> list[str]:
    """Return the fields that identify the table's cells: CELL, and every other field of Run that varies."""
    others = [item.name for item in dataclasses.fields(Run) if item.name not in CELL]
    varying = [name for name in others if name in frame and frame[name].nunique(dropna=False) > 1]
    return [name for name in CELL if name in frame] + varying


def need(frame: pd.DataFrame, columns: Sequence[str]) -> None:
    """Raise UserError naming the missing columns, or saying that the table is empty."""
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
    return np.asarray(np.lib.stride_tricks.sliding_window_view(filled_L, width).mean(axis=-1))


def outcome(
    rows: pd.DataFrame, *, window: int = WINDOW, rise: float = RISE, kept: float = KEPT
) -> dict[str, float]:
    """Return the outcome of one cell: final, best, start, ess_min, collapsed, diverged, peak_step, ….

    best = largest and final = last mean of `window` logged accuracies. collapsed: best - start >= rise and
    final < kept * best. peak_step is the last step of the best window; collapse_step the first step after it
    from which every window stays below kept * best (NaN when the run did not collapse). diverged: a loss or
    gradient was not finite, so the weights stood still from there; that is another outcome and is counted on
    its own. docs/outcomes.md defines the others; NaN if their columns were not logged.
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
        **further_outcomes(rows, final, window),
    }


def further_outcomes(rows: pd.DataFrame, final: float, window: int) -> dict[str, float]:
    """Return last, area, steps and rollouts to THRESHOLD, entropy and length collapse, and when it diverged.

    Args:
        rows: of one cell, sorted by step.
        final: mean of its last `window` accuracies.
        window: logged rows per mean.
    """
    step_L = rows["step"].to_numpy(dtype=np.float64)
    accuracy_L = np.nan_to_num(rows[ACCURACY].to_numpy(dtype=np.float64), nan=0.0)
    found = {
        "last": float(accuracy_L[-1]),
        "area": _area(step_L, accuracy_L),
        "steps_to": reached(rows, THRESHOLD, "step", window),
        "rollouts_to": reached(rows, THRESHOLD, ROLLOUTS, window),
    }
    entropy_step = _lost_for_good(rows, ENTROPY, ENTROPY_KEPT, window)
    if final >= SOLVED and entropy_step is not None:
        entropy_step = np.nan
    for name, step in (
        ("entropy", entropy_step),
        ("length", _lost_for_good(rows, LENGTH, LENGTH_KEPT, window)),
    ):
        found[f"{name}_collapsed"] = np.nan if step is None else float(not np.isnan(step))
        found[f"{name}_collapse_step"] = np.nan if step is None else step
    frozen_L = (rows[DIVERGED] != 0).to_numpy() if DIVERGED in rows else np.zeros(len(rows), dtype=bool)
    found["diverged_step"] = float(step_L[frozen_L.argmax()]) if frozen_L.any() else np.nan
    return found


def reached(rows: pd.DataFrame, threshold: float, column: str = "step", window: int = WINDOW) -> float:
    """Return the column where the mean of `window` accuracies is first at or above the threshold, else NaN.

    It is read in the last row of that window. Rows are sorted by step; NaN where the column was not logged.
    """
    smooth_W = smooth(rows[ACCURACY].to_numpy(dtype=np.float64), window)
    at = np.flatnonzero(smooth_W >= threshold)
    if not at.size or column not in rows:
        return np.nan
    value_L = rows[column].to_numpy(dtype=np.float64)
    return float(value_L[value_L.size - smooth_W.size + at[0]])


def _area(step_L: NDArray[np.float64], accuracy_L: NDArray[np.float64]) -> float:
    """Return the mean height of the curve between its first and last step, by trapezoids."""
    if step_L.size == 1:
        return float(accuracy_L[0])
    middle_L = (accuracy_L[1:] + accuracy_L[:-1]) / 2
    return float(middle_L @ np.diff(step_L) / (step_L[-1] - step_L[0]))


def _lost_for_good(rows: pd.DataFrame, column: str, kept: float, window: int) -> float | None:
    """Return the first step from which every window stays below kept * first value; NaN if there is none.

    None if the column was not logged.
    """
    if column not in rows or rows[column].isna().any():
        return None
    value_L = rows[column].to_numpy(dtype=np.float64)
    smooth_W = smooth(value_L, window)
    step_W = rows["step"].to_numpy(dtype=np.float64)[value_L.size - smooth_W.size :]
    above = np.flatnonzero(smooth_W >= kept * value_L[0])
    first = int(above[-1]) + 1 if above.size else 0
    return float(step_W[first]) if first < step_W.size else np.nan


def cells(
    frame: pd.DataFrame, *, window: int = WINDOW, rise: float = RISE, kept: float = KEPT
) -> pd.DataFrame:
    """Return one row per cell: the fields that name it and everything `outcome` says about it."""
    need(frame, ["recipe", "lag", "seed", "step", ACCURACY])
    names = cell_fields(frame)
    if frame.duplicated([*names, "step"]).any():
        raise UserError(
            f"Two rows share {', '.join(names)} and step, so the sweep varies something else too. Select the "
            "rows of one setting first."
        )
    rows = []
    for key, group in frame.groupby(names, sort=True, dropna=False):
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
    for key, group in found.groupby(names, sort=True, dropna=False):
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
