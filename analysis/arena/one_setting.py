"""What a setting that is fixed beforehand costs: finals at each arm's one setting, beside those at its own.

    python -m analysis.arena.one_setting [TASK LAG]

goes on where it was stopped, in the order of PLACES up to the given one, and writes one_setting.csv and
curves.csv
beside this file. The design is the text of `analysis/arena/__init__.py`.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from analysis.arena.arms import known
from analysis.arena.chosen_settings import cells_of
from analysis.arena.table import joint, load, tuning
from analysis.arena.tasks import TASKS
from analysis.arena.tuning import FRESH
from analysis.judging.intervals import student_interval
from analysis.tables.cell_table import value_of, words
from analysis.tables.committed import load_results
from analysis.tables.outcomes import ACCURACY
from testbed.config.run import Run, cell_ids

FINALS, CURVES = (Path(__file__).with_name(f"{name}.csv") for name in ("one_setting", "curves"))
SWEEPS = Path("results/one-setting")
PLACES = (
    *(("sorted", 64), ("sums", 64), ("sorted", 0), ("sums", 0)),
    *(("guess", 64), ("guess", 0), ("sorted", 16), ("sums", 16)),
)
"""Fresh data have a curve of GRPO alone."""
ARMS = tuple("grpo topr gspo ppo_ewma m2po vcpo minpro mis cispo reinforce placebo".split())  # noqa: SIM905
SEEDS = (*range(10), *range(FRESH, FRESH + 10))
DRAWN = 4
"""Seeds of a curve at an arm's own setting; at the one setting it has SEEDS."""
FINER = 2
"""Measurements between two of the arena's, plus one: curves have 21 points, finals are the arena's."""
KEYS = ["task", "lag", "arm"]


def settings() -> pd.DataFrame:
    """Return rate and knob of each arm's one setting, by arm."""
    return joint(tuning()).set_index("arm")[["rate", "knob"]]


def run_place(task: str, lag: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Run what the arena's table lacks at a task and lag; return finals and mean curves."""
    from testbed.execution.runner import run_sweep

    own, one = load(), settings()
    fixed = own.assign(**{name: own["arm"].map(one[name]) for name in ("rate", "knob")})
    cells: list[tuple[str, str, int, Run]] = []
    for arm in ARMS if lag else ARMS[:1]:
        for run in cells_of(own, task, {arm: (lag,)}, SEEDS[:DRAWN]):
            cells.append((arm, "own", run.seed - known()[arm].shift, run))
        here = own[(own["task"] == task) & (own["lag"] == lag) & (own["arm"] == arm)].iloc[0]
        if lag and (here["rate"], here["knob"]) != tuple(one.loc[arm]):
            for run in cells_of(fixed, task, {arm: (lag,)}, SEEDS):
                cells.append((arm, "one", run.seed - known()[arm].shift, run))
    runs = [replace(run, log_every=run.log_every // FINER) for *_, run in cells]
    run_sweep(runs, SWEEPS / f"{task}-{lag}", workers=0)
    rows = load_results(SWEEPS / f"{task}-{lag}")
    parts = {str(cell): part.sort_values("step") for cell, part in rows.groupby("cell")}
    return _kept(task, lag, cells, [parts[cell] for cell in cell_ids(runs)])


def _kept(
    task: str, lag: int, cells: Sequence[tuple[str, str, int, Run]], parts: Sequence[pd.DataFrame]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    finals, curves = [], []
    for (arm, setting, seed, run), part in zip(cells, parts, strict=True):
        where = {"task": task, "lag": lag, "arm": arm}
        curves += [where | {"setting": setting, "step": step, "at": at} for step, at in _curve(part)]
        if setting == "one":
            measured = (part["step"] % TASKS[task].log_every == 0) | (part["step"] == part["step"].max())
            final = value_of(part[measured], ACCURACY)
            kept = {"rate": run.learning_rate, "knob": words(run.recipe_args)}
            finals.append(where | {"seed": seed, **kept, "final": round(final, 4)})
    drawn = pd.DataFrame(curves).groupby([*KEYS, "setting", "step"], sort=False)["at"].agg(["size", "mean"])
    by_setting = drawn.groupby([*KEYS, "setting"], sort=False)
    lines = by_setting["mean"].agg(lambda mean_L: " ".join(f"{mean:.3f}" for mean in mean_L))
    return pd.DataFrame(finals), lines.to_frame("curve").assign(
        seeds=by_setting["size"].first()
    ).reset_index()


def _curve(part: pd.DataFrame) -> list[tuple[int, float]]:
    """Return step and accuracy; a run that diverged has 0 from there on, as in the finals."""
    return list(zip(part["step"].astype(int), part[ACCURACY].fillna(0.0), strict=True))


def finals() -> pd.DataFrame:
    """Return the committed finals at one setting: task, lag, arm, seed, rate, knob, final."""
    return pd.read_csv(FINALS)


def curves() -> pd.DataFrame:
    """Return the committed mean curves: task, lag, arm, setting (own or one), curve, seeds.

    A curve is accuracies on held-out prompts at equal distances, from step 0 to the task's last.
    """
    return pd.read_csv(CURVES)


def places() -> list[tuple[str, int]]:
    """Return the tasks and lags whose finals are committed."""
    found = finals()[["task", "lag"]].drop_duplicates()
    return list(found.itertuples(index=False, name=None))


def losses(frame: pd.DataFrame, by: Sequence[str] = KEYS) -> pd.DataFrame:
    """Return own, one and their difference, the loss, with a Student interval of 95 % over seeds.

    Per row of `by`, each seed has the mean of its cells of task and lag; a cell in which the one setting is
    the arm's own has loss 0.

    Args:
        frame: `table.load()`.
        by: KEYS, or "arm" alone.
    """
    fixed = finals()
    own = frame[frame["arm"].isin(ARMS) & frame["seed"].isin(SEEDS)]
    own = own.merge(fixed[["task", "lag"]].drop_duplicates())
    keys = [*KEYS, "seed"]
    both = own[[*keys, "final"]].merge(fixed, on=keys, how="left", suffixes=("", "_one"))
    both["one"] = both["final_one"].fillna(both["final"])
    by_seed = both.groupby([*by, "seed"], sort=False)[["final", "one"]].mean()
    found = []
    for where, part in by_seed.groupby(list(by), sort=False):
        loss = student_interval((part["final"] - part["one"]).to_numpy())
        means = {"own": part["final"].mean(), "one": part["one"].mean()}
        ends = {"loss": loss.center, "low": loss.low, "high": loss.high}
        found.append({**dict(zip(by, where, strict=True)), **means, **ends})
    return pd.DataFrame(found).sort_values(list(by), ignore_index=True)


if __name__ == "__main__":
    last = (sys.argv[1], int(sys.argv[2])) if sys.argv[1:] else PLACES[-1]
    done = []
    for place in PLACES[: PLACES.index(last) + 1]:
        done.append(run_place(*place))
        for path, tables in zip((FINALS, CURVES), zip(*done, strict=True), strict=True):
            pd.concat(tables).to_csv(path, index=False)
