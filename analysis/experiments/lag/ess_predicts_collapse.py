"""Does a small effective sample size, early on, foretell a collapse later?"""

import numpy as np
import pandas as pd

from analysis.lab import Experiment, Plot
from analysis.tables.committed import Table
from analysis.tables.outcomes import ESS, outcome

EARLY = 200
"""Steps that are read; a run that has collapsed by then is left out, as nothing is left to foretell."""
KEYS = ("recipe", "lag", "learning_rate", "seed")
GOOD = 0.8
"""AUROC that the source's statement is read as."""
SIGNS = {
    "log10 ess": (ESS, np.log10),
    "log10 max-weight ess": ("rollout_corr/ess_max_sequence_raw", np.log10),
    "kl": ("rollout_corr/kl_mu_pi_k3", None),
    "clip share": ("actor/clip_share", None),
    "entropy": ("actor/entropy", None),
    "log10 gradient norm": ("actor/grad_norm", np.log10),
    "hill": ("rollout_corr/tail_hill_sequence", None),
}
"""Early signs: a logged metric, and the scale on which it is averaged over the early rows."""


def early_signs(rows: pd.DataFrame, name: str = "ess-predicts-collapse") -> Table:
    """Return the mean of every sign over steps 1 to EARLY, and whether the run collapsed afterwards."""
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


EXPERIMENT = Experiment(
    question="Does a small effective sample size early in training foretell a collapse later?",
    source="Stable Asynchrony (VCPO): a falling ESS precedes collapse",
    differs="read over all recipes, lags and learning rates of the phase diagram at once",
    runs="phase-diagram",
    from_rows=early_signs,
    keys=KEYS,
    metrics=(*SIGNS, "collapsed", "collapse_step", "diverged"),
    margins={"AUROC that counts as foretelling": GOOD},
    figure=Plot(
        "ROC",
        x="alarm",
        y="collapsed",
        arm=("sign",),
        names={"log10 max-weight ess": "max-weight ESS", "log10 gradient norm": "gradient norm"},
        of=lambda table: pd.concat(
            table.assign(sign=sign, alarm=table[sign] * (1 if sign in ("kl", "clip share", "hill") else -1))
            for sign in SIGNS
        ).dropna(subset="alarm"),
    ),
)
