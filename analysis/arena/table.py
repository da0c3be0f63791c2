"""The arena's table: a row per task, lag, arm and final seed, and summaries per arm."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.arena.arms import Arm
from analysis.arena.halving import FRESH, Scores, cell
from analysis.arena.tasks import HIGH, LOW, PIPELINE, TASKS, lag_of, shown
from analysis.judging.seed_intervals import student_interval
from analysis.tables import committed as tables
from analysis.tables.cell_table import value_of, words
from analysis.tables.outcomes import ACCURACY
from testbed.config.run import Arguments, Run, cell_id
from testbed.errors import UserError

VERSION = 2
"""Version of the table, increased when tasks, arms or tuning change; rows of different versions are not
compared."""
NAME = "arena"
"""Name of the committed table, and of the experiment that judges it."""
COLUMNS: Mapping[str, str] = {
    "final": ACCURACY, "area": "area", "collapsed": "collapsed", "entropy": "val/entropy",
    "length": "val/response_length", "pass@8": "last val/pass@8", "kl": "mean rollout_corr/kl_mu_pi_k3",
    "clip_share": "mean actor/clip_share", "ess": "mean rollout_corr/ess_kish_sequence_raw",
}  # fmt: skip
"""For each column, its word in analysis.tables.cell_table."""
KEYS = ("task", "lag", "arm", "seed")
SETTING = ("rate", "knob", "at_edge")
KEPT = ("task", "lag", "arm", "run", "seed", *SETTING, *COLUMNS, "off_rate")
"""Columns of the committed table."""
ABOUT: Mapping[str, Any] = {
    "version": VERSION, "fresh": FRESH, "once": ["task", "lag", "arm", *SETTING], "counts": "seed",
}  # fmt: skip
"""Keys of the committed table, for Table.of."""
FAILED = 0.1
"""A seed whose final accuracy is below this has failed."""


def scores(rows: pd.DataFrame, by: str = "final") -> dict[str, float]:
    """Return an outcome of every cell by column name; "final" is 0 where the run diverged."""
    return {str(name): value_of(part.sort_values("step"), COLUMNS[by]) for name, part in rows.groupby("cell")}


def rows_of(
    task: str,
    rows: pd.DataFrame,
    wanted: Sequence[tuple[Arm, Run]],
    wrong: Sequence[tuple[Arm, Run]],
    at_edge: Mapping[str, bool],
) -> pd.DataFrame:
    """Return one row per final cell: keys, setting, COLUMNS, and the final at a wrong rate.

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
                **dict(zip(KEYS, (task, lag_of(run), arm.name, seed), strict=True)),
                "rate": run.learning_rate,
                "knob": words(run.recipe_args),
                "at_edge": int(at_edge[arm.name]),
                **{
                    name: value_of(part, word) if _logged(part, word) else np.nan
                    for name, word in COLUMNS.items()
                },
                "off_rate": np.mean(wrong_rate) if wrong_rate else np.nan,
            }
        )
    return _rounded(pd.DataFrame(found))


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
    return _rounded(pd.DataFrame(found))


def _rounded(frame: pd.DataFrame) -> pd.DataFrame:
    """Return outcomes rounded to four decimals and ESS to three; rates keep their digits."""
    return frame.round(
        {name: 3 if name == "ess" else 4 for name in frame.select_dtypes("float") if name != "rate"}
    )


def _logged(part: pd.DataFrame, word: str) -> bool:
    logged = word.rpartition(" ")[2]
    return word in ("area", "collapsed") or (logged in part and bool(part[logged].notna().any()))


def gathered(folder: Path, committed: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return the finals of every TASK-LAG.csv in a folder that `testbed arena run` wrote to, columns KEPT.

    committed: `load()`; its rows are kept beside those of the folder, except an arm's at another setting than
    the folder's.

    Raises UserError where the folder has none.
    """
    paths = sorted(path for path in folder.glob("*-*.csv") if not path.stem.endswith("-tuning"))
    if not paths:
        raise UserError(f"{folder} has no finals of the arena. Run it first: testbed arena run --task all")
    frame = pd.concat([pd.read_csv(path) for path in paths], ignore_index=True)
    frame["run"] = np.where(frame["seed"] < FRESH, "first", "replication")
    if committed is not None:
        where = [frame[name] for name in KEYS[:3]]
        now = dict(zip(zip(*where, strict=True), zip(frame["rate"], frame["knob"], strict=True), strict=True))
        kept = [
            now.get(row[:3], row[3:]) == row[3:]
            for row in committed[[*KEYS[:3], "rate", "knob"]].to_records(False).tolist()
        ]
        frame = pd.concat([committed[kept], frame]).drop_duplicates(list(KEYS), keep="last")
    order = {name: place for place, name in enumerate(TASKS)}
    frame = frame.sort_values(
        ["task", "lag", "arm", "seed"], key=lambda x: x.map(order) if x.name == "task" else x
    )
    return frame[list(KEPT)]


TUNING = Path(__file__).with_name("tuning.csv")


def tuning() -> pd.DataFrame:
    """Return the committed scores of tuning, a row per setting: task, lag, arm, rate, knob, seeds, final."""
    return pd.read_csv(TUNING)


def tried(task: str, lag: int, arm: Arm) -> dict[tuple[float, Arguments], list[float]]:
    """Return the committed tuning of an arm as scores, each seed with the mean of its setting.

    Raises UserError where nothing is committed.
    """
    rows = tuning().query("task == @task and lag == @lag and arm == @arm.name")
    if rows.empty:
        raise UserError(
            f"No tuning of {arm.name} on {task} at lag {lag} is committed; run it without --finer."
        )
    tried_args = [cell(TASKS[task], arm, lag, (0.001, args), 0).recipe_args for args in arm.knob]
    knobs = {words(args): args for args in tried_args}
    return {
        (float(row["rate"]), knobs[row["knob"]]): [row["final"]] * row["seeds"]
        for row in rows.to_dict("records")
    }


def joint(scores: pd.DataFrame) -> pd.DataFrame:
    """Return per arm the one setting that is best on all its stale tasks and lags, smallest loss first.

    scores: `tuning()`. A setting is eligible if it was tried in every cell of the arm, of which there must be
    two. joint: mean score of the setting; own: mean of the best scores of each cell; loss: own minus joint,
    which includes the luck of choosing the best of many on two to 32 seeds.
    """
    found: list[dict[str, Any]] = []
    for arm, rows in scores[scores["lag"] > 0].groupby("arm"):
        score_SC = rows.pivot_table(index=["rate", "knob"], columns=["task", "lag"], values="final")
        everywhere = score_SC.dropna().mean(axis=1)
        if everywhere.empty or score_SC.shape[1] < 2:
            continue
        best = everywhere.reset_index().iloc[int(everywhere.to_numpy().argmax())]
        own = float(score_SC.max().mean())
        value = float(everywhere.max())
        numbers = {"cells": score_SC.shape[1], "joint": value, "own": own, "loss": own - value}
        found.append({"arm": str(arm), "rate": best["rate"], "knob": best["knob"], **numbers})
    return pd.DataFrame(found).sort_values("loss", ignore_index=True)


def load(folder: Path = tables.COMMITTED) -> pd.DataFrame:
    """Return the committed finals; raise UserError where there are none, or of another version."""
    table = tables.load_committed([NAME], folder)[NAME]
    if table.about.get("version") != VERSION:
        raise UserError(
            f"The arena's table is of version {table.about.get('version')}, expected {VERSION}; run it again."
        )
    return table.frame


def summary(frame: pd.DataFrame, rival: str = "grpo") -> pd.DataFrame:
    """Return one row per task, lag and arm, best final first.

    gain: mean difference to the rival's final on the same seed (the placebo's seeds are other ones), with a
    Student interval of 95 %. sensitivity: mean final less the mean final at a third and three times of the
    rate, on the seeds that have both. failed: share of seeds below FAILED. Other columns are means.
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
                    "failed": (rows["final"] < FAILED).mean(),
                    "gain": gain.center if gain else np.nan,
                    "gain_low": gain.low if gain else np.nan,
                    "gain_high": gain.high if gain else np.nan,
                    "sensitivity": (sure["final"] - sure["off_rate"]).mean(),
                }
            )
    table = pd.DataFrame(found)
    return table.sort_values(["task", "lag", "final"], ascending=[True, True, False], ignore_index=True)


def held(frame: pd.DataFrame) -> str:
    """Return the tasks and lags of a table, for messages."""
    pairs = frame[["task", "lag"]].drop_duplicates().to_numpy()
    return ", ".join(f"{task} at lag {shown(lag)}" for task, lag in pairs)


def fresh(frame: pd.DataFrame) -> pd.Series:
    """Return the mean final of GRPO on fresh data, by task."""
    return frame[(frame["lag"] == 0) & (frame["arm"] == "grpo")].groupby("task")["final"].mean()


def roomy(frame: pd.DataFrame) -> pd.Index:
    """Return the tasks with headroom."""
    finals = fresh(frame)
    return finals[finals.between(LOW, HIGH)].index


def costly(frame: pd.DataFrame, lag: int, least: float = 0.05) -> list[str]:
    """Return the tasks on which the lag costs tuned GRPO at least `least` final accuracy: others say nothing
    about staleness.
    """
    means = frame[frame["arm"] == "grpo"].groupby(["task", "lag"], sort=False)["final"].mean().unstack()
    if not {0, lag} <= set(means):
        return []
    lost = means[0] - means[lag]
    return [task for task in TASKS if lost.get(task, np.nan) >= least]


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows for display: three decimals, rates unrounded, lags as words."""
    rows = frame.assign(**frame.drop(columns="rate", errors="ignore").select_dtypes("number").round(3))
    if "lag" in rows:
        rows["lag"] = [shown(lag) if lag == PIPELINE else lag for lag in rows["lag"]]
    return [{str(name): value for name, value in row.items()} for row in rows.to_dict("records")]
