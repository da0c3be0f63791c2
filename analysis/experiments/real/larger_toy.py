"""The toy LLM on the tasks, recipes and lags of the models of a million weights: what it foretells of them.

Its seeds are tuning seeds: medians over them are a prediction, judged on real models with other seeds.
"""

from dataclasses import replace
from typing import Any

import pandas as pd

from analysis.experiments.lag.safe_lag_fit import SIGNS, signs
from analysis.experiments.real.larger_rates import BY, MODELS, OLD, SIZES
from analysis.experiments.real.toy_for_real import RECIPES
from analysis.lab import Experiment
from analysis.sweeps.base_runs import TOY
from analysis.sweeps.tuning import RATE, best_rates, tuning_seeds
from analysis.tables.cell_table import cell_table
from analysis.tables.committed import Table, load_committed
from analysis.tables.outcomes import DIVERGED
from testbed.config.run import Run, grid

NAME = "larger-toy"
LAGS = (8, OLD, 64)
SHORTER: dict[str, Any] = SIZES | {"steps": max(LAGS)}
"""At the largest lag all data come from the first weights."""
EARLY = 40
"""Steps whose metrics are read as signs of what comes."""
GRID = (1e-3, 3e-3, 1e-2, 3e-2)
FAST = 1e-2
"""The rate of collapses: on tuning seeds at lag 64 as many arms break at it as real ones at theirs."""
TUNED = "tuned"
KEYS = ("task", "recipe", "lag", "seed")
METRICS = ("accuracy", "best", "start", "collapsed", "collapse_step")


def arms(run: Run, lags: tuple[int, ...] = LAGS) -> tuple[Run, ...]:
    """Return eight recipes at every lag, and GRPO on-policy beside them, of one starting run."""
    return (replace(run, recipe="grpo", lag=0), *grid(run, recipe=list(RECIPES), lag=list(lags)))


def cells() -> tuple[Run, ...]:
    """The arms on three tasks, 4 rates, 6 tuning seeds; taught as long as real models."""
    found: list[Run] = []
    for model in MODELS:
        toy = replace(TOY, task=model.task, task_args=model.task_args, teacher_noise=model.noise)
        toy = replace(toy, warm_start_steps=model.steps, **SHORTER)
        for run in grid(toy, learning_rate=list(GRID), seed=list(tuning_seeds(6))):
            found += arms(run)
    return tuple(found)


def with_signs(name: str, rows: pd.DataFrame, keys: tuple[str, ...], until: int = EARLY) -> Table:
    """Return one row per cell: outcomes, and the mean of every sign over the first steps."""
    table = cell_table(name, rows, keys, METRICS)
    early = rows[rows["step"] <= until].groupby(list(keys))
    seen = pd.DataFrame({key: signs(run) for key, run in early}).T.rename_axis(list(keys))
    return Table.of(name, table.frame.drop(columns=DIVERGED).join(seen, on=list(keys)), table.about)


def from_rows(rows: pd.DataFrame) -> Table:
    """Return the cells at the rate that suits their recipe best on their task at lag 32, and at FAST."""
    found = with_signs(NAME, rows, (*KEYS, RATE))
    best = best_rates(found.frame[found.frame["lag"] == OLD], BY, "accuracy")
    chosen = found.frame.merge(best[[*BY, RATE]])
    fast = found.frame[found.frame[RATE] == FAST]
    both = pd.concat([chosen.assign(**{TUNED: 1.0}), fast.assign(**{TUNED: 0.0})])
    kept = both.sort_values([TUNED, *KEYS], ignore_index=True)
    return Table.of(NAME, kept[[*EXPERIMENT.keys, *EXPERIMENT.metrics]], found.about)


def toy_rows(tuned: bool = True) -> pd.DataFrame:
    """Return the committed rows at tuned rates, or those at FAST."""
    frame = load_committed([NAME])[NAME].frame
    return frame[frame[TUNED] == float(tuned)]


def kept(frame: pd.DataFrame) -> pd.Series:
    """Return the share of its best accuracy that an arm ends with."""
    return frame["accuracy"] / frame["best"].clip(lower=1e-9)


EXPERIMENT = Experiment(
    question="How do eight tuned recipes end on the toy LLM where models of a million weights take them too?",
    source="this project",
    cells=cells,
    from_rows=from_rows,
    keys=(TUNED, *KEYS),
    metrics=(RATE, *METRICS, *SIGNS),
)
