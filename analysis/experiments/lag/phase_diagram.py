"""Twelve recipes on data of every age, each at three learning rates: where they learn and where they
collapse.

Learning rates are chosen on this map. No other table uses its seeds, so claims about a tuned recipe are
judged on fresh ones. Two experiments ask whether an early ESS predicts a later collapse. The first reads the
whole map, where ESS mostly reflects lag and learning rate, which are known anyway; the second compares
recipes at one lag and rate.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from analysis.judging.auroc import auroc
from analysis.lab import Experiment, Frame, Plot, Stop
from analysis.sweeps.base_runs import LAB
from analysis.sweeps.tuning import tuning_seeds
from analysis.tables.committed import Table
from analysis.tables.outcomes import ESS, outcome
from testbed.config.run import Run, grid

RECIPES = (
    *("reinforce", "grpo", "gspo", "cispo", "sapo", "tis"),
    *("m2po", "minpro", "vcpo", "topr", "asymre", "oapl"),
)
LAGS = (0, 16, 64, 256)
RATES = (3e-4, 1e-3, 3e-3)
SEEDS = tuning_seeds(4)


def cells() -> tuple[Run, ...]:
    """Twelve recipes at four lags and three learning rates, 4 tuning seeds, 600 steps."""
    return grid(LAB, recipe=list(RECIPES), lag=list(LAGS), learning_rate=list(RATES), seed=list(SEEDS))


def at_best_rate(table: Frame) -> Frame:
    """Return each recipe's median final accuracy at each lag, at its best learning rate."""
    at_rate = table.groupby(["recipe", "lag", "learning_rate"])["accuracy"].median()
    return at_rate.groupby(["recipe", "lag"]).max().reset_index()


DIAGRAM = Experiment(
    "phase-diagram",
    question="Where in lag and learning rate does each recipe learn, and where does it collapse?",
    source="the recipes' papers; comparing each at its best learning rate is this project's idea",
    differs="a transformer of 26,000 weights on running sums in place of large language models",
    cells=cells, keys=("recipe", "lag", "learning_rate", "seed"),
    metrics=(
        *("accuracy", "best", "start", "area", "collapsed", "collapse_step", "entropy_collapsed"),
        *("steps_to 0.5", "last val/pass@8", "mean actor/clip_share", "known actor/positive_share"),
        *("min rollout_corr/ess_kish_sequence_raw", "mean rollout_corr/kl_mu_pi_k3"),
    ),
    figure=Plot(
        "heat map", x="lag: lag (optimizer steps)", y="recipe", value="accuracy: final accuracy, best rate",
        of=at_best_rate,
        also=({"value": "collapsed: share collapsed", "of": None, "y": "recipe: "},),
    ),
)  # fmt: skip


EARLY = 200
"""Early steps that are read. A run that has collapsed by then is left out: nothing is left to predict."""
KEYS = ("recipe", "lag", "learning_rate", "seed")
GOOD = 0.8
"""AUROC at which the source's statement counts as true."""
SIGNS = {
    "log10 ess": (ESS, np.log10),
    "log10 max-weight ess": ("rollout_corr/ess_max_sequence_raw", np.log10),
    "kl": ("rollout_corr/kl_mu_pi_k3", None),
    "clip share": ("actor/clip_share", None),
    "entropy": ("actor/entropy", None),
    "log10 gradient norm": ("actor/grad_norm", np.log10),
    "hill": ("rollout_corr/tail_hill_sequence", None),
}
"""Early signs: a logged metric, and the scale on which the early rows are averaged."""


def early_signs(rows: Frame, name: str = "ess-predicts-collapse") -> Table:
    """Return the mean of every sign over steps 1 to EARLY, and whether the run collapsed later."""
    found = []
    for key, run in rows.groupby(list(KEYS), sort=True):
        became = outcome(run)
        if became["collapse_step"] <= EARLY:
            continue
        early = run[(run["step"] > 0) & (run["step"] <= EARLY)]
        signs = {sign: _mean(early[metric], scale) for sign, (metric, scale) in SIGNS.items()}
        event = {each: became[each] for each in ("collapsed", "collapse_step", "diverged")}
        found.append(dict(zip(KEYS, key, strict=True)) | signs | event)
    return Table.of(name, pd.DataFrame(found), {"early": EARLY, "cells": rows.groupby(list(KEYS)).ngroups})


def _mean(value: pd.Series, scale: np.ufunc | None) -> float:
    known = value[np.isfinite(value)]
    if scale is not None:
        known = scale(known[known > 0])
    return float(known.mean()) if len(known) else np.nan


PREDICTED = Experiment(
    "ess-predicts-collapse",
    question="Does a small effective sample size early in training foretell a collapse later?",
    source="Stable Asynchrony (VCPO): a falling ESS precedes collapse",
    differs="read over all recipes, lags and learning rates of the phase diagram together",
    runs="phase-diagram", from_rows=early_signs, keys=KEYS,
    metrics=(*SIGNS, "collapsed", "collapse_step", "diverged"),
    margins={"AUROC that counts as foretelling": GOOD},
    figure=Plot(
        "ROC", x="alarm", y="collapsed", arm=("sign",),
        names={"log10 max-weight ess": "max-weight ESS", "log10 gradient norm": "gradient norm"},
        of=lambda table: pd.concat(
            table.assign(sign=sign, alarm=table[sign] * (1 if sign in ("kl", "clip share", "hill") else -1))
            for sign in SIGNS
        ).dropna(subset="alarm"),
    ),
)  # fmt: skip


VCPO = "VCPO (2026), arXiv:2602.17616: a falling ESS precedes collapse"
LAG, RATE = 256, 3e-3
SIX = ("grpo", "asymre", "topr", "m2po", "vcpo", "minpro")
"""On the other seeds of the phase diagram, the first three never collapse here and the others mostly do."""


def warned_cells() -> tuple[Run, ...]:
    """Six recipes at lag 256 and learning rate 3e-3, where half of the runs collapse after step 200."""
    return grid(replace(LAB, lag=LAG, learning_rate=RATE), recipe=SIX, seed=[0])


WARNED = Experiment(
    "ess-warns",
    question="Among recipes at one lag and learning rate, does an early ESS say which will collapse?",
    source=f"{VCPO}; this project added the comparison at one lag and rate, chosen on the phase diagram",
    differs="six recipes on running sums; the mean over the first 200 steps, collapses after them",
    cells=warned_cells, from_rows=partial(early_signs, name="ess-warns"), stop=Stop(cap=32, begun_with=24),
    keys=KEYS, metrics=(*SIGNS, "collapsed", "collapse_step", "diverged"),
    margins={"AUROC that counts as foretelling": GOOD},
    systems={"VCPO (Stable Asynchrony)": "ESS as an early sign among recipes at one lag and rate"},
)  # fmt: skip


def areas(table: Frame, sign: str) -> pd.Series:
    """Return, per seed, the AUROC with which a small value predicts a later collapse, if both occur."""
    found = {
        seed: auroc(-rows[sign].to_numpy(dtype=float), rows["collapsed"].to_numpy(dtype=float))
        for seed, rows in table.groupby("seed")
    }
    return pd.Series(found, dtype=np.float64).dropna()


WARNED.claim(
    "ess-ranks-collapses-at-one-lag-and-rate",
    "At lag 256 and learning rate 3e-3 a small ESS in the first 200 steps ranks six recipes by whether they "
    "collapse later with an AUROC above 0.8, in the median over seeds.",
    source=VCPO,
).compare(partial(areas, sign="log10 ess"), by=GOOD, null=0.5)
WARNED.claim(
    "entropy-warns-better-than-ess-at-one-lag-and-rate",
    "At lag 256 and learning rate 3e-3 a small entropy of the policy in the first 200 steps ranks six "
    "recipes by whether they collapse later better than a small ESS does, on most seeds.",
    source="hypothesis of this project, from the phase diagram's seeds",
).compare(lambda table: (areas(table, "entropy") - areas(table, "log10 ess")).dropna())
