"""Recipes by level and sign of their ratios on old data at one learning rate for all, where some collapse."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pandas as pd

from analysis.lab import (
    Arm,
    Check,
    Evidence,
    Experiment,
    Part,
    Plot,
    Stop,
    arms,
    happens_more_often,
    median_exceeds,
)
from analysis.sweeps.base_runs import SMALL
from testbed.config.run import Run, grid

OLD, VERY_OLD = 64, 256
NAMES = {name.lower(): name for name in ("GRPO", "CISPO", "MinPRO", "DISPO", "DAPO", "GSPO", "SAPO", "MHPO")}
BY_LAG = {OLD: tuple(NAMES), VERY_OLD: ("grpo", "cispo", "minpro")}
PAIRS = (
    *(("minpro", rival, lag) for lag in BY_LAG for rival in ("grpo", "cispo")),
    *(("dispo", rival, OLD) for rival in ("cispo", "dapo")),
    *(("sapo", rival, OLD) for rival in ("grpo", "gspo")),
    *(("mhpo", rival, OLD) for rival in ("grpo", "sapo")),
)
"""Of which the first ends above, and collapses on fewer seeds than, the second, by the sources."""


def cells() -> tuple[Run, ...]:
    """Eight recipes at lag 64, three at 256, each at 3e-3, the rate that suits GRPO on-policy."""
    return tuple(
        cell
        for lag, names in BY_LAG.items()
        for cell in grid(replace(SMALL, lag=lag, learning_rate=3e-3), recipe=names)
    )


def _pair(table: pd.DataFrame, value: str, name: str, rival: str, lag: int) -> pd.DataFrame:
    wanted: dict[str, Arm] = {each: {"recipe": each, "lag": lag} for each in (name, rival)}
    return arms(table, value, wanted)


def _above(table: pd.DataFrame, *, name: str, rival: str, lag: int) -> Evidence:
    found = _pair(table, "accuracy", name, rival, lag)
    middle = found.median()
    note = f"median gain in final accuracy; medians {middle[name]:.3f}, {middle[rival]:.3f}"
    return median_exceeds(found[name] - found[rival], 0.0, note)


def _steadier(table: pd.DataFrame, *, name: str, rival: str, lag: int) -> Evidence:
    lost = _pair(table, "collapsed", name, rival, lag) > 0.5
    note = f"collapsed: {name} {lost[name].sum()}, {rival} {lost[rival].sum()} of {len(lost)} seeds"
    return happens_more_often(lost[rival], lost[name], f"{note}; share among seeds where one did")


def _grows(table: pd.DataFrame, *, rival: str) -> Evidence:
    gain = {lag: _pair(table, "accuracy", "minpro", rival, lag) for lag in BY_LAG}
    old_N, older_N = (found["minpro"] - found[rival] for found in gain.values())
    note = f"median growth of the gain; median gains {old_N.median():.3f} and {older_N.median():.3f}"
    return median_exceeds((older_N - old_N).dropna(), 0.0, note)


def _claims() -> dict[str, tuple[str, Check]]:
    """Return statement and check by the claim's name, which begins with the recipe that it speaks of."""
    found: dict[str, tuple[str, Check]] = {}
    for name, rival, lag in PAIRS:
        start, where = f"At rate 3e-3 and lag {lag}, {NAMES[name]}", f"at-one-rate-and-lag-{lag}"
        found[f"{name}-ends-above-{rival}-{where}"] = (
            f"{start} ends with a higher accuracy than {NAMES[rival]}, on most seeds.",
            partial(_above, name=name, rival=rival, lag=lag),
        )
        found[f"{name}-collapses-less-often-than-{rival}-{where}"] = (
            f"{start} collapses on fewer seeds than {NAMES[rival]}.",
            partial(_steadier, name=name, rival=rival, lag=lag),
        )
    for rival in ("grpo", "cispo"):
        found[f"minpro-gains-more-over-{rival}-at-one-rate-and-lag-256"] = (
            f"At rate 3e-3 MinPRO's gain over {NAMES[rival]} is larger at lag 256 than at 64, on most seeds.",
            partial(_grows, rival=rival),
        )
    return found


CLAIMS = _claims()


def _part(subject: str, what: str) -> Part:
    return Part(what, claims=tuple(name for name in CLAIMS if name.startswith(subject)))


EXPERIMENT = Experiment(
    "common-rate",
    question="Which ratios hold on old data at a learning rate that is too large for some of them?",
    source="MinPRO, arXiv:2601.22718; DISPO, 2602.00983; SAPO, 2511.20347; MHPO, 2603.16929",
    differs="sums of 6 digits, width 16, 400 steps; a stress test: ratio-level has every arm at its own rate",
    cells=cells,
    stop=Stop(block=16, cap=32),
    keys=("recipe", "lag", "seed"),
    metrics=(
        "accuracy",
        "best",
        "area",
        "collapsed",
        "val/entropy",
        "min rollout_corr/ess_kish_sequence_raw",
    ),
    figure=Plot(
        "distribution", x="recipe", y="accuracy", arm=("lag",), y_label="final accuracy, 3e-3 for all"
    ),
    systems={
        "MinPRO (A Step Back)": _part("minpro", "collapse and accuracy at one rate, lags 64 and 256"),
        "DISPO": _part("dispo", "collapse and accuracy at one rate; kinds: see collapse-by-regime"),
        "SAPO": _part("sapo", "collapse and accuracy at one rate"),
        "MHPO": _part("mhpo", "collapse and accuracy at one rate"),
    },
)
for _name, (_statement, _check) in CLAIMS.items():
    EXPERIMENT.claim(_name, statement=_statement)(_check)
