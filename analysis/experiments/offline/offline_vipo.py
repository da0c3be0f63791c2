"""Transition models that also have to be right about the value of the logged policy (VIPO)."""

from collections.abc import Iterator
from functools import cache

import numpy as np
import pandas as pd

from analysis.lab import Experiment, Plot, Seeds, columns, of_seeds
from analysis.worlds.offline_worlds import DISCOUNT, random_policies, random_worlds
from analysis.worlds.pilots import PILOT, Grid, inside, tuned
from envs.arrays import Floats
from testbed.offline.models import value_consistent_model
from testbed.offline.tabular_offline import clone, fitted_q, greedy, policy_q
from testbed.rng import generator

NAME = "offline-vipo"
SEEDS, PILOTS = 1280, 48
SIZES, RANKS, WEIGHTS = (100, 300), (1, 2, 4), (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
MARGIN, MORE = 0.1, 0.02
"""Of a log error; of the score, 1 being the optimum's lead over the uniform policy. Set before the table."""
ARMS: dict[str, Grid] = {
    "likelihood": {"rank": RANKS},
    "value-consistent": {"rank": RANKS, "weight": WEIGHTS},
}
TABLE = "table"
"""The arm of plain counts, a class that holds the truth."""


def learned(seeds: Seeds, steps: int, rank: float = 0, weight: float = 0.0) -> dict[str, Floats]:
    """Return log errors of model and value, and the score of planning, [R]; rank 0: a table of counts."""
    worlds = random_worlds(seeds)
    mu_RSA = random_policies(seeds, 8, 4, "mu", 2.0)
    law_RSA = worlds.state_law(mu_RSA)[..., None] * mu_RSA
    right_RS = (mu_RSA * worlds.q(mu_RSA)).sum(-1)
    counts = worlds.logged(mu_RSA, steps, seeds, f"log of {steps}")
    moves_RSAS = counts.moves_RSAS
    if rank:
        pi_RSA = clone(counts.visit_RSA)
        logged_RS = (pi_RSA * policy_q(counts.moves_RSAS, counts.reward_RSA, pi_RSA, DISCOUNT)).sum(-1)
        rng = generator(seeds[0], "model")
        moves_RSAS = value_consistent_model(
            counts, pi_RSA, logged_RS, DISCOUNT, rank=int(rank), consistency=weight, rng=rng
        )
    value_RS = (mu_RSA * policy_q(moves_RSAS, counts.reward_RSA, mu_RSA, DISCOUNT)).sum(-1)
    apart_R = (law_RSA * np.abs(moves_RSAS - worlds.moves_RSAS).sum(-1)).sum((1, 2)) / 2
    plan_RSA = greedy(fitted_q(moves_RSAS, counts.reward_RSA, DISCOUNT, counts.seen_RSA), counts.seen_RSA)
    return {
        "model_error": np.log(apart_R),
        "value_error": np.log(np.abs(value_RS - right_RS).mean(-1)),
        "score": worlds.score(plan_RSA),
    }


@cache
def setting(steps: int, arm: str) -> tuple[dict[str, float], bool]:
    """Return rank and weight of the highest score on pilot worlds, and whether one is at an end of its grid.

    A table is the next rank, so that the largest rank is no end.
    """
    seeds = tuple(range(PILOT, PILOT + PILOTS))
    knobs, ends = tuned(lambda **each: float(learned(seeds, steps, **each)["score"].mean()), ARMS[arm])
    return knobs, ends and knobs.get("weight") in WEIGHTS[:: len(WEIGHTS) - 1]


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Yield errors and scores by logged steps and arm, each at its setting."""
    for steps in SIZES:
        for arm in (*ARMS, TABLE):
            knobs, ends = setting(steps, arm) if arm in ARMS else ({}, False)
            yield columns(
                seeds, steps=steps, arm=arm, **learned(seeds, steps, **knobs), **{"at end": int(ends)}
            )


EXPERIMENT = Experiment(
    NAME,
    question="Does a model that must agree with the logged policy's value err less, and plan better?",
    source="Chen et al. (2025), VIPO: value function inconsistency penalized offline RL",
    differs="random worlds of 8 states; softmax models of rank 1 to 4 in place of networks",
    compute=of_seeds(NAME, rows, SEEDS, {"pilots": PILOTS}),
    keys=("run", "seed", "steps", "arm"),
    metrics=("model_error", "value_error", "score", "at end"),
    margins={"fall of a log error": MARGIN, "score": MORE},
    figure=Plot(
        "distribution",
        x="arm",
        y="score: score of planning",
        arm=("steps",),
        says="Shows the score (0 the uniform policy, 1 the optimum) of plans in a learned model of random "
        "worlds of 8 states, by logged steps: likelihood fits a low-rank model to logged moves; "
        "value-consistent also asks it to agree with the logged policy's value; table counts the moves.",
    ),
    systems=("VIPO (model-based offline RL)",),
)


FIRST, SECOND, GATES = {"arm": "value-consistent"}, {"arm": "likelihood"}, {"tuned": inside()}
PLANS = (
    "Planning in a model that must agree with the logged policy's value scores 0.02 more than in one of the "
    "likelihood alone, from"
)
ERRS = "At these settings the model's value of the logged policy errs by 10 % less from"
for _name, _says, _steps in (
    ("value-consistency-plans-better-from-100-steps", f"{PLANS} 100 steps, rank and weight tuned.", 100),
    ("value-consistency-plans-better-from-300-steps", f"{PLANS} 300 steps, rank and weight tuned.", 300),
):
    EXPERIMENT.claim(_name, _says, gates=GATES).compare(
        "score", FIRST, SECOND, by=MORE, over={"steps": _steps}
    )
for _name, _says, _steps in (
    ("value-consistency-lowers-the-value-error-from-100-steps", f"{ERRS} 100 steps.", 100),
    ("value-consistency-lowers-the-value-error-from-300-steps", f"{ERRS} 300 steps.", 300),
):
    EXPERIMENT.claim(_name, _says, gates=GATES).compare(
        "value_error", SECOND, FIRST, by=MARGIN, over={"steps": _steps}
    )

EXPERIMENT.claim(
    "value-consistency-lowers-the-model-error",
    "At these settings the model's transitions err by 10 % less in total variation, at both sizes.",
    gates=GATES,
).compare("model_error", SECOND, FIRST, by=MARGIN, over={"steps": SIZES})
