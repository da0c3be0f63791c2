"""Do 50 steps of a pilot foretell how old a recipe's data may be, in worlds that nothing was fitted on?"""

from dataclasses import replace
from functools import partial

import pandas as pd

from analysis.experiments.lag.safe_lag_fit import KEYS, RATES, SAFE, SIGNS, arms, fitted, safe_lags
from analysis.lab import Experiment, Plot, Stop
from analysis.sweeps.base_runs import SMALL
from analysis.tables.committed import Table, load_committed
from testbed import rng
from testbed.config.run import Run

FORETOLD, BY_RECIPE = "foretold by the pilot", "foretold by the recipe"
GOAL = 1.0
"""Octaves of lag that a forecast may be off in the mean over recipes. Set before the runs."""
WORLDS = (
    replace(SMALL, task="sorted", task_args=(("digits", 6),)),
    replace(SMALL, policy_args=(("width", 32),)),
)
"""Another task, and another width, than what was fitted on."""
EACH = tuple(replace(world, learning_rate=rate) for world in WORLDS for rate in RATES)


def cells() -> tuple[Run, ...]:
    """Six recipes at lags 0 to 128: sorted digits, running sums at width 32, two learning rates each."""
    return tuple(cell for base in EACH for cell in arms(base))


def drawn(run: Run) -> bool:
    """Return whether a run is of its seed's world and learning rate: one of four, at random."""
    mine = EACH[rng.key(run.seed, "safe-lag/world") % len(EACH)]
    return (run.task, run.policy_args, run.learning_rate) == (mine.task, mine.policy_args, mine.learning_rate)


def from_rows(rows: pd.DataFrame) -> Table:
    """Return the safe lags with two forecasts: from the pilot's signs, and the recipe's median in the fit."""
    found = safe_lags(rows, "safe-lag")
    known, new = load_committed(["safe-lag-fit"])["safe-lag-fit"].frame, found.frame.copy()
    usual = known.groupby("recipe")[SAFE].median()
    new[FORETOLD], new[BY_RECIPE] = fitted(known, new), new["recipe"].map(usual)
    return Table.of(found.name, new, found.about)


EXPERIMENT = Experiment(
    question="Do 50 steps of a pilot at lag 16 foretell how old a recipe's data may be?",
    source="this project",
    cells=cells,
    drawn=drawn,
    from_rows=from_rows,
    stop=Stop(block=16, cap=32, begun_with=16),
    keys=KEYS,
    metrics=(*SIGNS, SAFE, FORETOLD, BY_RECIPE),
    margins={"octaves off": GOAL},
    figure=Plot(
        "strips",
        x="off: mean error (octaves of lag)",
        y="forecast",
        of=lambda table: pd.concat(
            errors(table, forecast).rename("off").reset_index().assign(forecast=forecast)
            for forecast in (FORETOLD, BY_RECIPE)
        ),
    ),
)


def errors(table: pd.DataFrame, forecast: str) -> pd.Series:
    """Return per seed the mean over recipes of how many octaves a forecast is off."""
    return (table[forecast] - table[SAFE]).abs().groupby(table["seed"]).mean()


EXPERIMENT.claim(
    "a-pilot-foretells-the-safe-lag-within-an-octave",
    "On a task and a width that were not fitted, 50 steps at lag 16 foretell the largest safe lag of six "
    "recipes, as log2(1 + lag), with a mean error below 1, in the median over seeds.",
).compare(partial(errors, forecast=FORETOLD), by=GOAL, below=True)
