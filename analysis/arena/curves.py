"""Mean accuracy along training of the arena's arms, for pictures; verdicts rest on the arena's table.

    python -m analysis.arena.curves [TASK LAG]

runs the arms that have no curve yet, on all tasks and lags or on the given one, and adds their curves to
curves.csv beside this file.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.arena import table
from analysis.arena.chosen_settings import cells_of
from analysis.arena.tasks import TASKS, queue
from analysis.tables.committed import load_results
from analysis.tables.outcomes import ACCURACY
from testbed.config.run import Run, cell_ids

FILE = Path(__file__).with_suffix(".csv")
SWEEPS = Path("results/arena-curves")
SEEDS = range(4)
FINER = 2
"""Measurements of a curve per measurement of the arena: a curve has 21 points."""
KEYS = ["task", "lag", "arm", "setting"]
SHARE = 0.8
"""Share of fresh data's mean final accuracy; the time to reach it is an outcome."""


def load() -> pd.DataFrame:
    """Return the committed mean curves: task, lag, arm, setting (own or one), curve, seeds.

    A curve is accuracies on held-out prompts at equal distances, from step 0 to the task's last.
    """
    return pd.read_csv(FILE)


def start(task: str) -> float:
    """Return the base model's accuracy on a task, 0 without a curve of it."""
    drawn = load()
    found = drawn[(drawn["task"] == task) & (drawn["arm"] == "grpo")]["curve"]
    return float(found.iloc[0].split()[0]) if len(found) else 0.0


def timed(found: pd.DataFrame, fresh: Mapping[str, float]) -> pd.DataFrame:
    """Return rows of `table.summary` with steps_to_fresh: where the arm's mean curve first reaches SHARE.

    fresh: mean final of GRPO on fresh data, by task. Infinite where the curve never reaches it; NaN without a
    curve or fresh data.
    """
    own = load().query("setting == 'own'").set_index(["task", "lag", "arm"])["curve"]
    steps = []
    for task, lag, arm in found[["task", "lag", "arm"]].itertuples(index=False):
        accuracy_L = np.array(own.get((task, lag, arm), "").split(), dtype=float)
        at = np.flatnonzero(accuracy_L >= SHARE * fresh.get(task, np.nan))
        never = np.inf if task in fresh and accuracy_L.size else np.nan
        steps.append(at[0] * TASKS[task].steps / (len(accuracy_L) - 1) if at.size else never)
    return found.assign(steps_to_fresh=steps)


def finer(run: Run) -> Run:
    """Return the run, measured as often as a curve needs."""
    return replace(run, log_every=run.log_every // FINER)


def line(where: Mapping[str, object], parts: Sequence[pd.DataFrame]) -> dict[str, object]:
    """Return the row of a mean curve over runs; after divergence a run counts as 0, as in the finals."""
    mean_L = np.mean([part[ACCURACY].fillna(0.0).to_numpy() for part in parts], axis=0)
    return {**where, "curve": " ".join(f"{at:.3f}" for at in mean_L), "seeds": len(parts)}


def keep(rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows into FILE and replace those with the same keys."""
    both = pd.concat([load(), pd.DataFrame(rows)]).drop_duplicates(KEYS, keep="last")
    both.to_csv(FILE, index=False)


def draw(task: str, lag: int) -> None:
    """Run the arms of a task and lag that have no curve at their own setting, and keep their curves."""
    from testbed.execution.runner import run_sweep

    frame, drawn = table.load(), load()
    here, own = ({"task": task, "lag": lag}, drawn["setting"] == "own")
    had = drawn[own & (drawn["task"] == task) & (drawn["lag"] == lag)]["arm"]
    found = frame[(frame["task"] == task) & (frame["lag"] == lag)]["arm"].unique()
    runs = {
        arm: [finer(run) for run in cells_of(frame, task, {arm: (lag,)}, SEEDS)]
        for arm in found
        if arm not in set(had)
    }
    if not runs:
        return
    place = SWEEPS / f"{task}-{lag}"
    run_sweep([run for each in runs.values() for run in each], place, workers=0)
    parts = {str(cell): part.sort_values("step") for cell, part in load_results(place).groupby("cell")}
    keep(
        [
            line({**here, "arm": arm, "setting": "own"}, [parts[cell] for cell in cell_ids(each)])
            for arm, each in runs.items()
        ]
    )


if __name__ == "__main__":
    for place in [(sys.argv[1], int(sys.argv[2]))] if sys.argv[1:] else queue():
        draw(*place)
