"""Cost of a setting fixed beforehand: finals at each arm's one setting, beside those at its own.

    python -m analysis.arena.one_setting [TASK LAG]

adds the PLACES that one_setting.csv lacks, up to the given one, and their curves at one setting. The design
is the text of `analysis/arena/__init__.py`.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from analysis.arena import curves
from analysis.arena.chosen_settings import cells_of
from analysis.arena.halving import FRESH
from analysis.arena.table import joint, load, tuning
from analysis.arena.tasks import TASKS
from analysis.judging.seed_intervals import student_interval
from analysis.tables.cell_table import value_of, words
from analysis.tables.committed import load_results
from analysis.tables.outcomes import ACCURACY
from testbed.config.run import Run, cell_ids

FINALS = Path(__file__).with_suffix(".csv")
SWEEPS = Path("results/one-setting")
PLACES = (("sorted", 64), ("sums", 64), ("guess", 64), ("sorted", 16), ("sums", 16))
ARMS = tuple("grpo topr gspo ppo_ewma m2po vcpo minpro mis cispo reinforce placebo".split())  # noqa: SIM905
SEEDS = (*range(10), *range(FRESH, FRESH + 10))
KEYS = ["task", "lag", "arm"]


LATER = [("sorted", 1), ("sums", 1), ("long", 64), ("long", 400)]
"""Tasks and lags at which arms were tuned after their one setting had been chosen and run."""


def settings() -> pd.DataFrame:
    """Return rate and knob of each arm's one setting, by arm."""
    scores = tuning().set_index(["task", "lag"])
    return joint(scores.drop(index=LATER).reset_index()).set_index("arm")[["rate", "knob"]]


def run_place(task: str, lag: int) -> pd.DataFrame:
    """Run the arms whose own setting at a task and lag is another; return finals, and keep the curves."""
    from testbed.execution.runner import run_sweep

    own, one = load(), settings()
    fixed = own.assign(**{name: own["arm"].map(one[name]) for name in ("rate", "knob")})
    runs: dict[str, list[Run]] = {}
    for arm in ARMS:
        here = own[(own["task"] == task) & (own["lag"] == lag) & (own["arm"] == arm)].iloc[0]
        if (here["rate"], here["knob"]) != tuple(one.loc[arm]):
            runs[arm] = [curves.finer(run) for run in cells_of(fixed, task, {arm: (lag,)}, SEEDS)]
    place = SWEEPS / f"{task}-{lag}"
    run_sweep([run for each in runs.values() for run in each], place, workers=0)
    parts = {str(cell): part.sort_values("step") for cell, part in load_results(place).groupby("cell")}
    finals, lines = [], []
    for arm, each in runs.items():
        where, found = {"task": task, "lag": lag, "arm": arm}, [parts[cell] for cell in cell_ids(each)]
        lines.append(curves.line({**where, "setting": "one"}, found))
        for run, seed, part in zip(each, SEEDS, found, strict=True):
            measured = (part["step"] % TASKS[task].log_every == 0) | (part["step"] == part["step"].max())
            kept = {"rate": run.learning_rate, "knob": words(run.recipe_args)}
            final = round(value_of(part[measured], ACCURACY), 4)
            finals.append({**where, "seed": seed, **kept, "final": final})
    curves.keep(lines)
    return pd.DataFrame(finals)


def finals() -> pd.DataFrame:
    """Return the committed finals at one setting: task, lag, arm, seed, rate, knob, final."""
    return pd.read_csv(FINALS)


def places() -> list[tuple[str, int]]:
    """Return the tasks and lags whose finals are committed."""
    found = finals()[["task", "lag"]].drop_duplicates()
    return list(found.itertuples(index=False, name=None))


def losses(frame: pd.DataFrame, by: Sequence[str] = KEYS) -> pd.DataFrame:
    """Return own, one and their difference, the loss, with a Student interval of 95 % over seeds.

    Per row of `by`, each seed has the mean of its cells of task and lag; a cell whose own setting is the
    arm's one setting has loss 0.

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
    for place in PLACES[: PLACES.index(last) + 1]:
        if place not in places():
            pd.concat([finals(), run_place(*place)]).to_csv(FINALS, index=False)
