"""How old data may be for each recipe, and what the first 50 steps of a pilot run say of it: to fit on.

Its seeds are tuning seeds; `safe-lag` judges what is fitted here on another task, width and other seeds.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from analysis.lab import Experiment
from analysis.sweeps.base_runs import SMALL
from analysis.sweeps.tuning import tuning_seeds
from analysis.tables.cell_table import value_of
from analysis.tables.committed import Table
from analysis.tables.outcomes import ACCURACY
from testbed.config.run import Run, grid

RECIPES = ("grpo", "tis", "m2po", "vcpo", "topr", "asymre")
LAGS = (0, 16, 64, 128)
RATES = (1e-3, 3e-3)
PILOT, EARLY = 16, 50
"""Lag of the pilot, and its steps that are read."""
ALLOWED, LEARNED = 0.1, 0.3
"""Accuracy that a safe lag may cost; accuracy on-policy below which nothing is to lose."""
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


def cells() -> tuple[Run, ...]:
    """The recipes and lags on running sums at two learning rates, 8 tuning seeds."""
    each = [replace(SMALL, learning_rate=rate, seed=seed) for rate in RATES for seed in tuning_seeds(8)]
    return tuple(cell for base in each for cell in arms(base))


def safe_lags(rows: pd.DataFrame, name: str = "safe-lag-fit") -> Table:
    """Return the largest safe lag, log2(1 + lag), of every recipe and seed, with the signs of its pilot.

    A lag is safe when it and all smaller ones end at most 0.1 below the on-policy run of the same seed. A
    recipe that does not learn on-policy has no row.
    """
    found = []
    for key, runs in rows.groupby(list(KEYS), sort=True):
        by_lag = {lag: runs[runs["lag"] == lag].sort_values("step") for lag in LAGS}
        final = {lag: value_of(run, ACCURACY) for lag, run in by_lag.items()}
        if final[0] < LEARNED:
            continue
        safe = largest_safe(final)
        found.append(dict(zip(KEYS, key, strict=True)) | signs(by_lag[PILOT]) | {SAFE: np.log2(1 + safe)})
    cells = rows.groupby([*KEYS, "lag"]).ngroups
    about = {"lags": list(LAGS), "pilot": PILOT, "early": EARLY, "cells": cells}
    return Table.of(name, pd.DataFrame(found), about)


def largest_safe(final: dict[int, float]) -> int:
    """Return the largest lag up to which no final accuracy is more than 0.1 below that at lag 0."""
    safe = 0
    for lag in sorted(final):
        if final[lag] < final[0] - ALLOWED:
            break
        safe = lag
    return safe


def signs(run: pd.DataFrame) -> dict[str, float]:
    """Return the mean of every sign over a pilot's steps 1 to 50; 0 where nothing is known."""
    early = run[(run["step"] > 0) & (run["step"] <= EARLY)]
    found = {}
    for sign, (metric, scale) in SIGNS.items():
        value = early[metric][np.isfinite(early[metric])]
        value = value if scale is None else scale(value[value > 0])
        found[sign] = float(value.mean()) if len(value) else 0.0
    return found


def fitted(table: pd.DataFrame, new: pd.DataFrame, columns: Iterable[str] = tuple(SIGNS)) -> np.ndarray:
    """Return the safe octaves foretold for new rows by ridge regression, weight 1 on standardized signs."""
    x = table[list(columns)].to_numpy(dtype=float)
    center, scale = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-9)
    x = (x - center) / scale
    y = table[SAFE].to_numpy(dtype=float)
    weight = np.linalg.solve(x.T @ x + np.eye(x.shape[1]), x.T @ (y - y.mean()))
    guess = y.mean() + ((new[list(columns)].to_numpy(dtype=float) - center) / scale) @ weight
    return np.clip(guess, 0.0, np.log2(1 + max(LAGS)))


EXPERIMENT = Experiment(
    question="How old may data be for each recipe, and what do the first 50 steps of a pilot look like?",
    source="this project",
    cells=cells,
    from_rows=partial(safe_lags, name="safe-lag-fit"),
    keys=KEYS,
    metrics=(*SIGNS, SAFE),
)
