"""Pessimism with rewards recovered from logged discrete choices (DCPPO), against greedy planning."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.lab import (
    Evidence,
    Experiment,
    Plot,
    Seeds,
    columns,
    exact,
    level,
    must_exceed,
    of_seeds,
)
from analysis.worlds.offline_worlds import DISCOUNT, Worlds, random_worlds
from testbed.offline.models import discrete_choice, pessimistic_q, recovered_reward
from testbed.offline.tabular import clone, fitted_q, greedy

NAME = "offline-dcppo"
SEEDS, PRIOR = 24, 0.1
SIZES = (200, 1000, 5000, 20000)
SCALES = {"greedy": 0.0, "pessimistic": 1.0}
MARGIN = 0.0


def choosers(seeds: Seeds) -> Worlds:
    """Worlds in which action 0 pays nothing, which is what makes the others' rewards identified."""
    plain = random_worlds(seeds, noise_std=0.0)
    reward_RSA = 2.0 * plain.reward_RSA * (np.arange(4) > 0)
    worlds = tuple(
        dataclasses.replace(w, reward_SA=r_SA) for w, r_SA in zip(plain.worlds, reward_RSA, strict=True)
    )
    return Worlds(worlds, plain.moves_RSAS, reward_RSA)


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return regrets of three planners by logged choices; rewards are never logged."""
    worlds = choosers(seeds)
    mu_RSA, _ = discrete_choice(worlds.moves_RSAS, worlds.reward_RSA, DISCOUNT)
    best_R = worlds.value(worlds.best_RSA)
    for steps in SIZES:
        counts = worlds.logged(mu_RSA, steps, seeds, f"log of {steps}")
        reward_RSA = recovered_reward(clone(counts.visit_RSA, PRIOR), counts.moves_RSAS, DISCOUNT)
        learned = {
            name: greedy(pessimistic_q(counts, DISCOUNT, scale, reward_RSA), counts.seen_RSA)
            for name, scale in SCALES.items()
        }
        learned["unmasked"] = greedy(fitted_q(counts.moves_RSAS, reward_RSA, DISCOUNT))
        for name, pi_RSA in learned.items():
            yield columns(seeds, steps=steps, learner=name, regret=best_R - worlds.value(pi_RSA))


EXPERIMENT = Experiment(
    NAME,
    question="Can pessimism plan with rewards that are recovered from choices alone?",
    source="Li, Yang & Wang (2023), RLHF: learning dynamic choices via pessimism, arXiv:2305.18438",
    differs="random worlds, tables; logit shocks, an action of known reward, a bonus of 1/sqrt(n)",
    compute=of_seeds(NAME, rows, SEEDS, {"prior": PRIOR, "scale": SCALES["pessimistic"]}),
    keys=("run", "seed", "steps", "learner"),
    metrics=("regret",),
    margins={"regret": MARGIN},
    figure=Plot("final by dial", x="steps: logged choices", y="regret", arm=("learner",)),
    systems=("DCPPO",),
)


@EXPERIMENT.claim(source="Rust (1987); Hotz & Miller (1993), the inversion of choice probabilities")
def choices_identify_rewards() -> Evidence:
    """The reward recovered from exact choice probabilities, given one action's, is the true one, and makes
    the choices again; another anchor's reward leaves the choices as they are.
    """
    worlds = choosers(tuple(range(8)))
    mu_RSA, _ = discrete_choice(worlds.moves_RSAS, worlds.reward_RSA, DISCOUNT)
    found_RSA = recovered_reward(mu_RSA, worlds.moves_RSAS, DISCOUNT)
    other_RSA = recovered_reward(mu_RSA, worlds.moves_RSAS, DISCOUNT, anchor=1, anchor_reward=-1.0)
    gaps = [np.abs(found_RSA - worlds.reward_RSA).max()]
    for reward_RSA in (found_RSA, other_RSA):
        gaps.append(np.abs(discrete_choice(worlds.moves_RSAS, reward_RSA, DISCOUNT)[0] - mu_RSA).max())
    return exact(gaps, 1e-8, "largest distance of a reward or a choice probability")


EXPERIMENT.claim(
    "pessimism-beats-greed-on-recovered-rewards",
    "Pessimistic planning has less regret than greedy planning within the log, at each size.",
).compare("regret", {"learner": "greedy"}, {"learner": "pessimistic"}, by=MARGIN, over={"steps": SIZES})


@EXPERIMENT.claim()
def pessimistic_regret_falls_as_root_n(table: pd.DataFrame) -> Evidence:
    """From 200 to 20000 choices the regret of pessimistic planning falls at least to 15 %: as n^-0.4."""
    early, late = (level(table, "regret", {"learner": "pessimistic", "steps": n}) for n in (200, 20000))
    found = {run: 0.15 * early[run] - late[run] for run in early}
    return must_exceed(found, 0.0, "0.15 of the first regret less the last")
