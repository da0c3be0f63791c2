"""The arena's table: a row per task, lag, arm and final seed, and what it says of each arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.arena.arms import Arm
from analysis.arena.tuning import Scores
from analysis.judging.intervals import student_interval
from analysis.tables.cell_table import value_of, words
from analysis.tables.outcomes import ACCURACY
from testbed.config.run import Run, cell_id
from testbed.errors import UserError

VERSION = 2
"""Rises when tasks, arms or tuning change; rows of different versions are not compared."""
COMMITTED = Path(__file__).parent / "table.csv"
COLUMNS: Mapping[str, str] = {
    "final": ACCURACY,
    "area": "area",
    "collapsed": "collapsed",
    "entropy": "val/entropy",
    "length": "val/response_length",
    "pass@8": "last val/pass@8",
    "kl": "mean rollout_corr/kl_mu_pi_k3",
    "clip_share": "mean actor/clip_share",
    "ess": "mean rollout_corr/ess_kish_sequence_raw",
}
"""By column of the table: the word of analysis.tables.cell_table that it holds."""
KEYS = ("version", "task", "lag", "arm", "seed")


def finals(rows: pd.DataFrame) -> dict[str, float]:
    """Return the final accuracy of every cell, mean over its last three logged rows; 0 where it diverged."""
    return {str(name): value_of(part.sort_values("step"), ACCURACY) for name, part in rows.groupby("cell")}


def rows_of(
    task: str,
    rows: pd.DataFrame,
    wanted: Sequence[tuple[Arm, Run]],
    wrong: Sequence[tuple[Arm, Run]],
    at_edge: Mapping[str, bool],
) -> pd.DataFrame:
    """Return one row per final cell: keys, setting, COLUMNS, the curve, and the final at a wrong rate.

    off_rate: mean over both wrong rates of the final at the seed; NaN for seeds without them. at_edge: 1
    where the optimum was still at the grid's edge after it had grown.
    """
    parts = {str(name): part.sort_values("step") for name, part in rows.groupby("cell")}
    off: dict[tuple[str, int], list[float]] = {}
    for arm, run in wrong:
        off.setdefault((arm.name, run.seed - arm.shift), []).append(value_of(parts[cell_id(run)], ACCURACY))
    found: list[dict[str, object]] = []
    for arm, run in wanted:
        part = parts[cell_id(run)]
        seed = run.seed - arm.shift
        wrong_rate = off.get((arm.name, seed))
        found.append(
            {
                **dict(zip(KEYS, (VERSION, task, run.lag, arm.name, seed), strict=True)),
                "rate": run.learning_rate,
                "knob": words(run.recipe_args),
                "at_edge": int(at_edge[arm.name]),
                **{
                    name: value_of(part, word) if _logged(part, word) else np.nan
                    for name, word in COLUMNS.items()
                },
                "off_rate": np.mean(wrong_rate) if wrong_rate else np.nan,
                "curve": " ".join(f"{value:.3f}" for value in part[ACCURACY].fillna(0.0)),
            }
        )
    return pd.DataFrame(found).round(4)


def tuning_of(task: str, lag: int, scores: Mapping[str, Scores]) -> pd.DataFrame:
    """Return one row per setting that was tried in tuning: its mean final accuracy over its seeds."""
    found = [
        {
            **{"task": task, "lag": lag, "arm": arm, "rate": rate, "knob": words(args)},
            "seeds": len(finals_N),
            "final": float(np.mean(finals_N)),
        }
        for arm, settings in scores.items()
        for (rate, args), finals_N in settings.items()
    ]
    return pd.DataFrame(found).round(4)


def _logged(part: pd.DataFrame, word: str) -> bool:
    logged = word.rpartition(" ")[2]
    return word in ("area", "collapsed") or (logged in part and bool(part[logged].notna().any()))


def load(path: Path = COMMITTED) -> pd.DataFrame:
    """Return the rows of a table; raise UserError where there is none, or for one of another version."""
    if not path.exists():
        raise UserError(
            f"No table of the arena in {path}; expected the file that `testbed arena run` writes."
        )
    frame = pd.read_csv(path)
    missing = [name for name in (*KEYS, *COLUMNS) if name not in frame]
    if missing:
        raise UserError(f"{path} is no table of the arena: it lacks {', '.join(missing)}.")
    versions = sorted(set(frame["version"]))
    if versions != [VERSION]:
        said = ", ".join(map(str, versions))
        raise UserError(f"{path} has version {said} of the arena, expected {VERSION}; run it again.")
    return frame


def summary(frame: pd.DataFrame, rival: str = "grpo") -> pd.DataFrame:
    """Return one row per task, lag and arm, best final first.

    gain: mean difference to the rival's final on the same seed (the placebo's seeds are other ones), with a
    Student interval of 95 %. sensitivity: mean final less the mean final at a third and three times of the
    rate, on the seeds that have both. Other columns are means over seeds.
    """
    found: list[dict[str, object]] = []
    for (task, lag), cells in frame.groupby(["task", "lag"], sort=False):
        base_N = cells[cells["arm"] == rival].set_index("seed")["final"]
        for arm, rows in cells.groupby("arm", sort=False):
            by_seed = rows.set_index("seed")
            gain_N = (by_seed["final"] - base_N).dropna().to_numpy(dtype=float)
            gain = student_interval(gain_N) if arm != rival and gain_N.size > 1 else None
            sure = by_seed.dropna(subset=["off_rate"])
            found.append(
                {
                    **{"task": task, "lag": lag, "arm": arm, "seeds": len(rows)},
                    **{name: rows[name].iloc[0] for name in ("rate", "knob", "at_edge")},
                    **{name: rows[name].mean() for name in COLUMNS},
                    "gain": gain.center if gain else np.nan,
                    "gain_low": gain.low if gain else np.nan,
                    "gain_high": gain.high if gain else np.nan,
                    "sensitivity": (sure["final"] - sure["off_rate"]).mean(),
                }
            )
    table = pd.DataFrame(found)
    return table.sort_values(["task", "lag", "final"], ascending=[True, True, False], ignore_index=True)


def steps_to_fresh(frame: pd.DataFrame, steps: int, share: float = 0.8) -> pd.DataFrame:
    """Return per task, lag and arm the median step at which seeds reach a share of fresh data's mean final.

    Read from the curves, of which the first value is that of the first logged step and the last that of
    `steps`; infinite for seeds that never reach it. Tasks without GRPO at lag 0 are left out.
    """
    found: list[dict[str, object]] = []
    for (task, lag, arm), rows in frame.groupby(["task", "lag", "arm"], sort=False):
        fresh = frame[(frame["task"] == task) & (frame["lag"] == 0) & (frame["arm"] == "grpo")]["final"]
        if fresh.empty:
            continue
        reached_N = []
        for curve in rows["curve"]:
            accuracy_L = np.array(curve.split(), dtype=float)
            at = np.flatnonzero(accuracy_L >= share * fresh.mean())
            reached_N.append(at[0] * steps / (len(accuracy_L) - 1) if at.size else np.inf)
        found.append({"task": task, "lag": lag, "arm": arm, "steps_to_fresh": float(np.median(reached_N))})
    return pd.DataFrame(found)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows to be shown, three digits each."""
    return [{str(name): value for name, value in row.items()} for row in frame.round(3).to_dict("records")]
