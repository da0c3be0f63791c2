"""Among recipes on data of one age at one learning rate: does ESS say which of them will collapse?

Over a whole sweep ESS mostly tells lags and learning rates apart, which one knows anyway.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from analysis.experiments.lag.ess_predicts_collapse import GOOD, KEYS, SIGNS, early_signs
from analysis.judging.auroc import auroc
from analysis.lab import Experiment, Part, Stop
from analysis.sweeps.base_runs import LAB
from testbed.config.run import Run, grid

VCPO = "VCPO (2026), arXiv:2602.17616: a falling ESS precedes collapse"
LAG, RATE = 256, 3e-3
RECIPES = ("grpo", "asymre", "topr", "m2po", "vcpo", "minpro")
"""In the phase diagram, whose seeds are others, the first three never collapse here, the others mostly."""


def cells() -> tuple[Run, ...]:
    """Six recipes at lag 256 and learning rate 3e-3, where half of them collapse after step 200."""
    return grid(replace(LAB, lag=LAG, learning_rate=RATE), recipe=RECIPES, seed=[0])


EXPERIMENT = Experiment(
    question="Among recipes at one lag and learning rate, does an early ESS say which will collapse?",
    source=f"{VCPO}; the comparison at one lag and rate is this project's, chosen on the phase diagram",
    differs="six recipes on running sums; the mean over the first 200 steps, collapses after them",
    cells=cells,
    from_rows=partial(early_signs, name="ess-warns"),
    stop=Stop(cap=32, begun_with=24),
    keys=KEYS,
    metrics=(*SIGNS, "collapsed", "collapse_step", "diverged"),
    margins={"AUROC that counts as foretelling": GOOD},
    systems={"VCPO (Stable Asynchrony)": Part("ESS as an early sign among recipes at one lag and rate")},
)


def areas(table: pd.DataFrame, sign: str) -> pd.Series:
    """Return the AUROC of a small value for a later collapse, per seed; seeds without both kinds left out."""
    found = {
        seed: auroc(-rows[sign].to_numpy(dtype=float), rows["collapsed"].to_numpy(dtype=float))
        for seed, rows in table.groupby("seed")
    }
    return pd.Series(found, dtype=np.float64).dropna()


EXPERIMENT.claim(
    "ess-ranks-collapses-at-one-lag-and-rate",
    "At lag 256 and learning rate 3e-3 a small ESS in the first 200 steps ranks six recipes by whether they "
    "collapse later with an AUROC above 0.8, in the median over seeds.",
    source=VCPO,
).compare(partial(areas, sign="log10 ess"), by=GOOD, null=0.5)
EXPERIMENT.claim(
    "entropy-warns-better-than-ess-at-one-lag-and-rate",
    "There a small entropy of the policy ranks them by whether they collapse later better than a small ESS "
    "does, on most seeds.",
    source="own hypothesis, from the phase diagram's seeds",
).compare(lambda table: (areas(table, "entropy") - areas(table, "log10 ess")).dropna())
