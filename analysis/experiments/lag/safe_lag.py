"""Do 50 steps of a pilot predict how old a recipe's data may be, in worlds that were not used for the fit?

The forecast is fitted on running sums and tuning seeds, and judged on another task, width and other seeds.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from analysis.lab import Experiment, Frame, Plot, Stop
from analysis.sweeps.base_runs import SMALL
from analysis.sweeps.tuning import tuning_seeds
from analysis.tables.cell_table import value_of
from analysis.tables.committed import Table, load_committed
from analysis.tables.outcomes import ACCURACY
from testbed import rng
from testbed.config.run import Run, grid

RECIPES = ("grpo", "tis", "m2po", "vcpo", "topr", "asymre")
LAGS = (0, 16, 64, 128)
RATES = (1e-3, 3e-3)
PILOT, EARLY = 16, 50
"""Lag of the pilot, and the number of its steps that are read."""
ALLOWED, LEARNED = 0.1, 0.3
"""Largest loss of accuracy at a safe lag; on-policy accuracy below which a recipe counts as not learning."""
KEYS = ("task", "policy_args", "learning_rate", "recipe", "seed")
SAFE = "safe octaves"
SIGNS = {
    "log10 kl": ("rollout_corr/kl_mu_pi_k3", np.log10),
    "log10 ess": ("rollout_corr/ess_kish_sequence_raw", np.log10),
    "clip share": ("actor/clip_share", None),
    "log10 gradient norm": ("actor/grad_norm", np.log10),
    "hill": ("rollout_corr/tail_hill_sequence", None),
    "entropy": ("actor/entropy", None),
}
"""Signs in a pilot: a logged metric, and the scale on which it is averaged."""


def arms(base: Run) -> tuple[Run, ...]:
    """Return six recipes at four lags, 300 steps."""
    return grid(replace(base, steps=300, log_every=10), recipe=list(RECIPES), lag=list(LAGS))


def fit_cells() -> tuple[Run, ...]:
    """The recipes and lags on running sums at two learning rates, 8 tuning seeds."""
    each = [replace(SMALL, learning_rate=rate, seed=seed) for rate in RATES for seed in tuning_seeds(8)]
    return tuple(cell for base in each for cell in arms(base))


def safe_lags(rows: Frame, name: str = "safe-lag-fit") -> Table:
    """Return the largest safe lag of every recipe and seed as log2(1 + lag), with the signs of its pilot.

    A lag is safe when it and all smaller lags end at most 0.1 below the on-policy run of the same seed. A
    recipe that does not learn on-policy gets no row.
    """
    found = []
    for key, runs in rows.groupby(list(KEYS), sort=True):
        by_lag = {lag: runs[runs["lag"] == lag].sort_values("step") for lag in LAGS}
        final = {lag: value_of(run, ACCURACY) for lag, run in by_lag.items()}
        if final[0] < LEARNED:
            continue
        safe = largest_safe(final)
        found.append(dict(zip(KEYS, key, strict=True)) | signs(by_lag[PILOT]) | {SAFE: np.log2(1 + safe)})
    count = rows.groupby([*KEYS, "lag"]).ngroups
    about = {"lags": list(LAGS), "pilot": PILOT, "early": EARLY, "cells": count}
    return Table.of(name, pd.DataFrame(found), about)


def largest_safe(final: dict[int, float]) -> int:
    """Return the largest lag up to which every final accuracy is within 0.1 of that at lag 0."""
    safe = 0
    for lag in sorted(final):
        if final[lag] < final[0] - ALLOWED:
            break
        safe = lag
    return safe


def signs(run: Frame) -> dict[str, float]:
    """Return the mean of every sign over a pilot's steps 1 to 50; 0 where nothing was logged."""
    early = run[(run["step"] > 0) & (run["step"] <= EARLY)]
    found = {}
    for sign, (metric, scale) in SIGNS.items():
        value = early[metric][np.isfinite(early[metric])]
        value = value if scale is None else scale(value[value > 0])
        found[sign] = float(value.mean()) if len(value) else 0.0
    return found


def fitted(table: Frame, new: Frame, columns: Iterable[str] = tuple(SIGNS)) -> np.ndarray:
    """Return the octaves of safe lag predicted by ridge regression (penalty 1, standardized signs)."""
    x = table[list(columns)].to_numpy(dtype=float)
    center, scale = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-9)
    x = (x - center) / scale
    y = table[SAFE].to_numpy(dtype=float)
    weight = np.linalg.solve(x.T @ x + np.eye(x.shape[1]), x.T @ (y - y.mean()))
    guess = y.mean() + ((new[list(columns)].to_numpy(dtype=float) - center) / scale) @ weight
    return np.clip(guess, 0.0, np.log2(1 + max(LAGS)))


FIT = Experiment(
    "safe-lag-fit",
    question="How old may data be for each recipe, and what do the first 50 steps of a pilot look like?",
    source="this project",
    cells=fit_cells,
    from_rows=partial(safe_lags, name="safe-lag-fit"),
    keys=KEYS,
    metrics=(*SIGNS, SAFE),
)


FORETOLD, BY_RECIPE = "foretold by the pilot", "foretold by the recipe"
GOAL = 1.0
"""Largest mean error of a forecast over recipes, in octaves of lag. Set before the runs."""
WORLDS = (
    replace(SMALL, task="sorted", task_args=(("digits", 6),)),
    replace(SMALL, policy_args=(("width", 32),)),
)
"""Another task and another width than those of the fit."""
EACH = tuple(replace(world, learning_rate=rate) for world in WORLDS for rate in RATES)


def cells() -> tuple[Run, ...]:
    """Six recipes at lags 0 to 128: sorted digits, running sums at width 32; two learning rates each."""
    return tuple(cell for base in EACH for cell in arms(base))


def drawn(run: Run) -> bool:
    """Return whether a run belongs to its seed's world and learning rate, one of four drawn at random."""
    mine = EACH[rng.key(run.seed, "safe-lag/world") % len(EACH)]
    return (run.task, run.policy_args, run.learning_rate) == (mine.task, mine.policy_args, mine.learning_rate)


def from_rows(rows: Frame) -> Table:
    """Return safe lags with two forecasts: from the pilot's signs and from the recipe's median in the fit."""
    found = safe_lags(rows, "safe-lag")
    known, new = load_committed(["safe-lag-fit"])["safe-lag-fit"].frame, found.frame.copy()
    usual = known.groupby("recipe")[SAFE].median()
    new[FORETOLD], new[BY_RECIPE] = fitted(known, new), new["recipe"].map(usual)
    return Table.of(found.name, new, found.about)


JUDGED = Experiment(
    "safe-lag",
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


def errors(table: Frame, forecast: str) -> pd.Series:
    """Return, per seed, the mean error of a forecast over recipes, in octaves."""
    return (table[forecast] - table[SAFE]).abs().groupby(table["seed"]).mean()


JUDGED.claim(
    "a-pilot-foretells-the-safe-lag-within-an-octave",
    "On a task and a width that were not fitted, 50 steps at lag 16 foretell the largest safe lag of six "
    "recipes, as log2(1 + lag), with a mean error below 1, in the median over seeds.",
).compare(partial(errors, forecast=FORETOLD), by=GOAL, below=True)
