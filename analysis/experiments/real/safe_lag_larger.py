"""How old may the data of models of a million weights be, and does the toy LLM foretell it?

It adds lag 8 to the seeds of `larger-models`, whose cells at lags 0, 32 and 64 it reads.
"""

from functools import partial

import numpy as np
import pandas as pd

from analysis.experiments.lag.safe_lag_fit import ALLOWED, SAFE, SIGNS, fitted, largest_safe
from analysis.experiments.real.larger_models import STOP, drawn
from analysis.experiments.real.larger_rates import BY, MODELS
from analysis.experiments.real.larger_rates import NAME as RATES
from analysis.experiments.real.larger_toy import KEYS, LAGS, SHORTER, toy_rows, with_signs
from analysis.experiments.real.toy_for_real import RECIPES
from analysis.lab import Evidence, Experiment, median_exceeds, median_stays_below
from analysis.sweeps.tuned_cells import tuned
from analysis.tables.committed import Table, load_committed
from analysis.worlds.hf_bases import make
from testbed.config.run import Run, grid

NAME = "safe-lag-larger"
OCTAVE = 1.0
"""Mean error of log2(1 + safe lag) over recipes that counts as foretelling. Set before the runs."""
PILOT, USUAL, CONSTANT = "foretold by a pilot", "foretold by the toy", "foretold by one number"


def cells() -> tuple[Run, ...]:
    """Eight recipes at lag 8 and tuned rates, on three models."""
    each = (model.run(**SHORTER, lag=LAGS[0]) for model in MODELS)
    return tuned((cell for run in each for cell in grid(run, recipe=list(RECIPES))), RATES, BY)


def pilots(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the cells at the smallest stale lag, with log2(1 + safe lag) of their recipe and seed.

    A lag is safe when it and all smaller ones end at most 0.1 below GRPO on-policy of the same seed.
    """
    final = frame.set_index(list(KEYS))["accuracy"].to_dict()

    def octaves(task: str, recipe: str, seed: int) -> float:
        old = {lag: final[task, recipe, lag, seed] for lag in LAGS}
        return float(np.log2(1 + largest_safe({0: final[task, "grpo", 0, seed], **old})))

    found = frame[frame["lag"] == LAGS[0]]
    arms_N = zip(found["task"], found["recipe"], found["seed"], strict=True)
    return found.assign(**{SAFE: [octaves(*arm) for arm in arms_N]})


def from_rows(rows: pd.DataFrame) -> Table:
    """Return one row per pilot: its end, its signs, the safe lag, and three forecasts of that.

    Ridge regression on the signs, fitted on the toy; the toy's median for the same task and recipe; and the
    toy's median of all.
    """
    table = with_signs(NAME, rows, KEYS)
    older = load_committed(["larger-models"])["larger-models"].frame
    known, new = pilots(toy_rows()), pilots(pd.concat([table.frame, older]))
    new[PILOT] = np.minimum(fitted(known, new), np.log2(1 + max(LAGS)))
    new[CONSTANT] = known[SAFE].median()
    new = new.join(known.groupby(list(BY))[SAFE].median().rename(USUAL), on=list(BY))
    return Table.of(NAME, new[[*KEYS, *EXPERIMENT.metrics]], table.about)


EXPERIMENT = Experiment(
    NAME,
    question="Does the tuned toy LLM foretell how old the data of models of a million weights may be?",
    source="this project",
    prepare=partial(make, MODELS),
    cells=cells,
    drawn=drawn,
    from_rows=from_rows,
    stop=STOP,
    keys=KEYS,
    metrics=("accuracy", *SIGNS, SAFE, PILOT, USUAL, CONSTANT),
    margins={"octaves": OCTAVE, "accuracy that a safe lag may cost": ALLOWED},
)


def off(table: pd.DataFrame, forecast: str) -> pd.Series:
    """Return per seed the mean over recipes of how many octaves a forecast of the safe lag is off."""
    return (table[forecast] - table[SAFE]).abs().groupby(table["seed"]).mean()


@EXPERIMENT.claim()
def a_toys_pilots_foretell_the_safe_lag_of_larger_models(table: pd.DataFrame) -> Evidence:
    """Fitted on the toy LLM, 40 steps of a pilot at lag 8 foretell which of the lags 0, 8, 32 and 64 is
    the largest safe one of eight recipes on models of a million weights, as log2(1 + lag), with a mean error
    below 1, in the median over seeds.
    """
    errors = {name: off(table, name) for name in (PILOT, USUAL, CONSTANT)}
    middle = ", ".join(f"{error.median():.2f} {name}" for name, error in errors.items())
    return median_stays_below(errors[PILOT], OCTAVE, f"median error in octaves; medians {middle}")


def _better(table: pd.DataFrame, forecast: str) -> Evidence:
    gain = off(table, CONSTANT) - off(table, forecast)
    return median_exceeds(gain, 0.0, "median of the octaves by which it is closer")


for _name, _column, _how in (
    ("a-pilot", PILOT, "a pilot read so"),
    ("the-toy", USUAL, "the toy's own median for a task and recipe"),
):
    EXPERIMENT.claim(
        f"{_name}-foretells-the-safe-lag-of-larger-models-better-than-one-number",
        statement=(
            f"On models of a million weights {_how} is less wrong about the safe lag than the toy's median "
            "over all of them, on most seeds."
        ),
    )(partial(_better, forecast=_column))
