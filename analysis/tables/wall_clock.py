"""Return of a run by the clock of a pipeline: the time at which it reaches a level."""

import math
from typing import Any

import numpy as np
import pandas as pd

from analysis.tables.outcomes import ACCURACY, WINDOW, need, smooth
from analysis.tables.value_table import VALUE

TIME = "pipeline/time"
AGE = "staleness/age_mean_token"
SHARE = 0.9
"""Default level: this share of the best final return among the recipes."""
LATE = 10.0
"""A run that misses the level counts as its last second in the slow arm, LATE times that in the fast arm."""


def smoothed(rows: pd.DataFrame, column: str) -> np.ndarray:
    """Return the logged returns of one run in order; accuracies as means of WINDOW rows, NaN as 0."""
    values_L = rows.sort_values("step")[column].to_numpy(dtype=np.float64)
    return smooth(values_L, WINDOW if column == ACCURACY else 1)


def reached(rows: pd.DataFrame, column: str, level: float) -> tuple[float, float]:
    """Return the step and the pipeline's time of a run's first logged row at `level` or above, or (inf, inf).

    A row has the return of the weights before its update, and the time when its batch was taken.
    """
    value_W = smoothed(rows, column)
    there_W = np.flatnonzero(value_W >= level)
    if not there_W.size:
        return math.inf, math.inf
    row = rows.sort_values("step").iloc[len(rows) - value_W.size + there_W[0]]
    return float(row["step"]), float(row[TIME])


def wall_clock(frame: pd.DataFrame, level: float | None = None) -> tuple[float, list[dict[str, Any]]]:
    """Return the level and one row per setting, over seeds, of a sweep that followed a trace.

    level: of return; None takes SHARE times the best mean final return of a setting. A row has the setting
    (recipe, and what else varies), final (mean over seeds), age (mean over tokens and steps), seconds per
    update, seconds to the level (median; inf when half of the seeds never reach it), reached and seeds.
    """
    column = ACCURACY if ACCURACY in frame else VALUE
    need(frame, [column, TIME])
    by = ["recipe", *(n for n in ("task", "recipe_args", "learning_rate") if frame[n].nunique() > 1)]
    frame = frame.assign(recipe_args=frame["recipe_args"].replace("", "default"))
    runs = {
        key: [rows for _, rows in some.groupby("cell")]
        for key, some in frame.groupby(by, sort=True, dropna=False)
    }
    final = {
        key: float(np.mean([smoothed(rows, column)[-1] for rows in cells])) for key, cells in runs.items()
    }
    level = SHARE * max(final.values()) if level is None else level
    table = []
    for key, cells in runs.items():
        seconds = [reached(rows, column, level)[1] for rows in cells]
        table.append(
            {
                **dict(zip(by, key, strict=True)),
                "final": final[key],
                "age": float(np.mean([rows[AGE].mean() for rows in cells])),
                "seconds per update": float(np.mean([pace(rows) for rows in cells])),
                "seconds to level": float(np.median(seconds)),
                "reached": int(np.isfinite(seconds).sum()),
                "seeds": len(seconds),
            }
        )
    return level, table


def pace(rows: pd.DataFrame) -> float:
    """Return the time of a run's last row over the updates it counts, the one it takes included."""
    return float(rows[TIME].max() / (rows["step"].max() + 1))


def log_speed_up(slow_N: pd.Series, fast_N: pd.Series, last: float, ratio: float) -> pd.Series:
    """Return log(seconds of the slow arm / seconds of the fast one) until both reach a level, per seed.

    slow_N, fast_N: updates that they needed, NaN for never. last: updates of a whole run. ratio: seconds per
    update of the slow pipeline over those of the fast one.
    """
    return (ratio * slow_N.fillna(last) / fast_N.fillna(LATE * last)).map(math.log)
