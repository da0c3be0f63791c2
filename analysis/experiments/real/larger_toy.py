"""The toy LLM on the tasks, recipes and lags of the models of a million weights: what it foretells of them.

Its seeds are tuning seeds: medians over them are a prediction, judged on real models with other seeds.
"""

from dataclasses import replace
from typing import Any

import pandas as pd

from analysis.cell_table import cell_table
from analysis.collapse import DIVERGED
from analysis.experiment import Experiment
from analysis.experiments.lag.safe_lag_fit import SIGNS, signs
from analysis.experiments.real.larger_rates import BY, MODELS, OLD, SIZES
from analysis.experiments.real.toy_for_real import RECIPES
from analysis.load import Table
from analysis.starting_runs import TOY
from analysis.tuning import RATE, best_rates, tuning_seeds
from testbed.config.run import Run, grid

NAME = "larger-toy"
LAGS = (8, 64)
SHORTER: dict[str, Any] = SIZES | {"steps": max(LAGS)}
"""At the largest lag all data come from the first weights."""
EARLY = 40
"""Steps whose metrics are read as signs of what comes."""
KEYS = ("task", "recipe", "lag", "seed")
METRICS = ("accuracy", "best", "start", "collapsed", "collapse_step")


def arms(run: Run, lags: tuple[int, ...] = LAGS) -> tuple[Run, ...]:
    """Return eight recipes at every lag, and GRPO on-policy beside them, of one starting run."""
    return (replace(run, recipe="grpo", lag=0), *grid(run, recipe=list(RECIPES), lag=list(lags)))


def cells() -> tuple[Run, ...]:
    """The arms, and lag 32 to tune at, on three tasks, 3 rates, 6 tuning seeds; taught as long as real."""
    found: list[Run] = []
    for model in MODELS:
        toy = replace(TOY, task=model.task, task_args=model.task_args, teacher_noise=model.noise)
        toy = replace(toy, warm_start_steps=model.steps, **SHORTER)
        for run in grid(toy, learning_rate=[1e-3, 3e-3, 1e-2], seed=list(tuning_seeds(6))):
            found += arms(run, (*LAGS, OLD))
    return tuple(found)


def with_signs(name: str, rows: pd.DataFrame, keys: tuple[str, ...]) -> Table:
    """Return one row per cell: outcomes, and the mean of every sign over the first 40 steps."""
    table = cell_table(name, rows, keys, METRICS)
    early = rows[rows["step"] <= EARLY].groupby(list(keys))
    seen = pd.DataFrame({key: signs(run) for key, run in early}).T.rename_axis(list(keys))
    return Table.of(name, table.frame.drop(columns=DIVERGED).join(seen, on=list(keys)), table.about)


def from_rows(rows: pd.DataFrame) -> Table:
    """Return the cells at the rate that suits their recipe best on their task at lag 32."""
    found = with_signs(NAME, rows, (*KEYS, RATE))
    best = best_rates(found.frame[found.frame["lag"] == OLD], BY, "accuracy")
    kept = found.frame.merge(best[[*BY, RATE]]).sort_values(list(KEYS), ignore_index=True)
    return Table.of(NAME, kept[[*KEYS, RATE, *METRICS, *SIGNS]], found.about)


EXPERIMENT = Experiment(
    NAME,
    question="How do eight tuned recipes end on the toy LLM where models of a million weights take them too?",
    source="this project",
    cells=cells,
    from_rows=from_rows,
    keys=KEYS,
    metrics=(RATE, *METRICS, *SIGNS),
)
