"""Abstract reward processes (STAR) against the usual estimators of values, in 12 tabular settings."""

import itertools
from collections.abc import Iterator
from functools import partial

import numpy as np
import pandas as pd

from analysis.lab import RUNS, Evidence, Experiment, Plot, happens_mostly
from analysis.tables.committed import Table
from analysis.worlds.trajectory_worlds import of_log, ten_steps
from envs.arrays import Floats
from envs.finite_mdp import FiniteMDP
from envs.offline import collect, skilled
from testbed.estimators.abstraction import star
from testbed.estimators.doubly_robust_trajectory import trajectory_dr
from testbed.estimators.fqe import fitted_q_steps, fqe_finite
from testbed.estimators.trajectory import cwpdis, pdis, trajectory_is, trajectory_wis
from testbed.estimators.trajectory_weights import LoggedEpisodes
from testbed.offline.tabular import greedy, optimal_q
from testbed.rng import keys

NAME = "ope-star"
REPLICATIONS, DISCOUNT = 60, 0.95
EPISODES, DISTANCES = (50, 400), (0.2, 0.5)
CLASSES, RATIOS = (1, 2, 4, 0), (0, 1, 3, None)
"""Sizes of abstractions, 0 for all states apart, and how many of the last ratios a weight has; None for all.
"""
USUAL = {"IS": trajectory_is, "WIS": trajectory_wis, "PDIS": pdis, "CWPDIS": cwpdis, "FQE": fqe_finite}


def settings() -> Iterator[tuple[str, FiniteMDP, int, float]]:
    """The 12 settings: world, episodes, and how much better than the logger the asked policy is."""
    for (name, world), episodes, apart in itertools.product(ten_steps(7).items(), EPISODES, DISTANCES):
        yield f"{name}, {episodes} episodes, {apart:g} apart", world, episodes, apart


def logged(world: FiniteMDP, episodes: int, apart: float, first: int) -> tuple[LoggedEpisodes, float]:
    """60 logs of a policy of quality 0.2, and the value of one that is better by `apart`."""
    best_SA = greedy(optimal_q(world))[0]
    mu_SA, pi_SA = skilled(best_SA, 0.2), skilled(best_SA, 0.2 + apart)
    seeds = tuple(range(first, first + REPLICATIONS))
    given = np.broadcast_to(mu_SA, (REPLICATIONS, 1, *mu_SA.shape))
    log = collect(world, given, episodes, keys(seeds, "ope-star"))
    return of_log(log, pi_SA, mu_SA, DISCOUNT), float(world.value(pi_SA))


def errors(found: LoggedEpisodes, value: float, states: int) -> dict[str, float]:
    """Mean squared error of every estimator over the logs."""

    def mse(estimate_R: Floats) -> float:
        return float(((estimate_R - value) ** 2).mean())

    measured = {name: mse(estimate(found).value) for name, estimate in USUAL.items()}
    measured["DR"] = mse(trajectory_dr(found.with_model(fitted_q_steps(found))).value)
    for size, ratios in itertools.product(CLASSES, RATIOS):
        label_S = np.arange(states) if size == 0 else np.arange(states) * size // states
        measured[f"STAR {size or 'all'}, {'all' if ratios is None else ratios}"] = mse(
            star(found, abstraction_S=label_S, c=ratios).value
        )
    return measured


def table() -> Table:
    """Return log mean squared errors of the best usual, the best and the median STAR, by run and setting."""
    rows = []
    for run, first in RUNS.items():
        for name, world, episodes, apart in settings():
            measured = errors(*logged(world, episodes, apart, first), world.states)
            stars = [error for each, error in measured.items() if each.startswith("STAR")]
            usual = {each: error for each, error in measured.items() if not each.startswith("STAR")}
            best = min(usual, key=lambda each: usual[each])
            found = {
                "best STAR": min(stars),
                "median STAR": float(np.median(stars)),
                "best usual": usual[best],
            }
            rows += [(run, name, each, float(np.log10(error))) for each, error in found.items()]
    frame = pd.DataFrame(rows, columns=["run", "setting", "estimator", "log10_mse"])
    return Table.of(NAME, frame, {"replications": REPLICATIONS, "configurations": len(CLASSES) * len(RATIOS)})


EXPERIMENT = Experiment(
    NAME,
    question="Do abstract reward processes estimate values better than the usual estimators, in 12 settings?",
    source="STAR (2024), Abstract reward processes: leveraging state abstraction for consistent OPE",
    differs=(
        "12 settings of our own; the best STAR is picked by its true error, as the best usual estimator is"
    ),
    compute=table,
    keys=("run", "setting", "estimator"),
    metrics=("log10_mse",),
    figure=Plot("distribution", x="estimator", y="log10_mse: log10 mean squared error"),
    systems=("STAR (abstract reward processes)",),
)


def _wins(table: pd.DataFrame, name: str) -> Evidence:
    """Return the evidence about the settings in which it errs less than the best usual one in both runs."""
    wide = table.pivot(index=["setting", "run"], columns="estimator", values="log10_mse")
    wins = list((wide[name] < wide["best usual"]).groupby("setting").all())
    return happens_mostly(wins, f"share of settings won in both runs: {sum(wins)} of {len(wins)}")


for _name, _words, _source in (("best", "best of 16 STARs", 12), ("median", "median STAR", 7)):
    EXPERIMENT.claim(
        f"{_name}-star-wins-in-most-settings",
        statement=(
            f"In most of 12 settings the {_words} errs less than the best of six usual estimators; "
            f"source: {_source}."
        ),
    )(partial(_wins, name=f"{_name} STAR"))
