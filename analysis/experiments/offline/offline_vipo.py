"""Transition models that are also trained to predict the value of the logged policy (VIPO)."""

import functools

import numpy as np

from analysis.lab import Floats, Grid, Groups, Plot, Seeds, TunedArms, generator, inside
from analysis.worlds.offline_worlds import DISCOUNT, random_policies, random_worlds
from testbed.offline.models import value_consistent_model
from testbed.offline.tabular_offline import clone, fitted_q, greedy, policy_q

NAME = "offline-vipo"
SEEDS, PILOTS, FRESH, STATES = 512, 96, 270_000, 16
"""Worlds of a run, pilots, offset of seeds past those of earlier tables, and states of a world."""
SIZES, RANKS, WEIGHTS = (160, 640), (1, 2), (0.0, *(0.02 * 2.0**i for i in range(13)))
MARGIN, MORE = 0.1, 0.02
"""Margins of a log error and of the score, 1 being the optimum's lead over uniform. Set before the table."""
ARMS: dict[str, Grid] = {
    "likelihood": {"rank": RANKS},
    "consistent": {"rank": RANKS, "weight": WEIGHTS},
    "table": {},
}
"""Ranks of the model, too small for 16 states, so that it errs however long the log is; and the table of
counts. A weight of 0 leaves the likelihood alone, so tuning can switch the term off."""


def learned(seeds: Seeds, _arm: str, steps: int, aim: str, rank: float = 0, weight: float = 0.0) -> Groups:
    """Return log errors of model and value, the score of planning, and the aim, [R]; rank 0: a table.

    aimed: the score, or minus the value's log error, by which settings are chosen.
    """
    model_R, value_R, score_R = fitted(tuple(seeds), steps, int(rank), weight)
    aimed_R = score_R if aim == "score" else -value_R
    return {"model_error": model_R, "value_error": value_R, "score": score_R, "aimed": aimed_R}


@functools.cache
def fitted(seeds: Seeds, steps: int, rank: int, weight: float) -> tuple[Floats, Floats, Floats]:
    """Return log errors of a fitted model and of its value, and the score of planning in it, [R] each."""
    seeds = tuple(seed + FRESH for seed in seeds)
    worlds = random_worlds(seeds, states=STATES)
    mu_RSA = random_policies(seeds, STATES, 4, "mu", 2.0)
    law_RSA = worlds.state_law(mu_RSA)[..., None] * mu_RSA
    right_RS = (mu_RSA * worlds.q(mu_RSA)).sum(-1)
    counts = worlds.logged(mu_RSA, steps, seeds, f"log of {steps}")
    moves_RSAS = counts.moves_RSAS
    if rank:
        pi_RSA = clone(counts.visit_RSA)
        logged_RS = (pi_RSA * policy_q(counts.moves_RSAS, counts.reward_RSA, pi_RSA, DISCOUNT)).sum(-1)
        # All worlds of a run share one start, at any weight: arms differ by the term alone.
        rng = generator(seeds[0], "model")
        moves_RSAS = value_consistent_model(
            counts, pi_RSA, logged_RS, DISCOUNT, rank=rank, consistency=weight, rng=rng
        )
    value_RS = (mu_RSA * policy_q(moves_RSAS, counts.reward_RSA, mu_RSA, DISCOUNT)).sum(-1)
    apart_R = (law_RSA * np.abs(moves_RSAS - worlds.moves_RSAS).sum(-1)).sum((1, 2)) / 2
    plan_RSA = greedy(fitted_q(moves_RSAS, counts.reward_RSA, DISCOUNT, counts.seen_RSA), counts.seen_RSA)
    error_R = np.log(np.abs(value_RS - right_RS).mean(-1))
    return np.log(apart_R), error_R, worlds.score(plan_RSA)


TUNED = TunedArms(
    ARMS, learned, "aimed", PILOTS, {"steps": SIZES, "aim": ("score", "error")}, {"rank": RANKS}
)
"""Settings are best for the score of planning, or for the model's value of the logged policy."""
EXPERIMENT = TUNED.experiment(
    NAME, SEEDS, ("model_error", "value_error", "score", "aimed"),
    question="Does a model that must agree with the logged policy's value err less, and plan better?",
    source="Chen et al. (2025), VIPO: value function inconsistency penalized offline RL",
    differs="random worlds of 16 states; softmax models of rank 1 or 2 in place of networks",
    margins={"fall of a log error": MARGIN, "score": MORE},
    figure=Plot(
        "distribution", x="arm", y="score: score of planning", arm=("steps",), where={"aim": "score"},
        says="Shows the score (0 the uniform policy, 1 the optimum) of plans in a learned model of random "
        "worlds of 16 states, by logged steps; likelihood fits a low-rank model to logged moves; "
        "consistent also asks it to agree with the logged policy's value; table counts the moves.",
    ),
    systems=("VIPO (model-based offline RL)",),
)  # fmt: skip

FIRST, SECOND = {"arm": "consistent"}, {"arm": "likelihood"}
PLANS = (
    "Where no model of its rank holds the world, planning in one that must also agree with the logged "
    "policy's value scores 0.02 more than in one of the likelihood alone, from {} steps, both tuned."
)
ERRS = (
    "There, at its best rank and weight for it, its value of the logged policy errs by 10 % less from {} "
    "steps."
)
for _name, _says, _steps, _asked in (
    ("value-consistency-plans-better-from-160-steps", PLANS, 160, ("score", FIRST, SECOND, MORE)),
    ("value-consistency-lowers-the-value-error-from-160-steps", ERRS, 160,
     ("value_error", SECOND, FIRST, MARGIN)),
    ("value-consistency-plans-better-from-640-steps", PLANS, 640, ("score", FIRST, SECOND, MORE)),
    ("value-consistency-lowers-the-value-error-from-640-steps", ERRS, 640,
     ("value_error", SECOND, FIRST, MARGIN)),
):  # fmt: skip
    EXPERIMENT.claim(_name, _says.format(_steps), gates={"tuned": inside()}).compare(
        *_asked[:3],
        by=_asked[3],
        over={"steps": _steps, "aim": "score" if _asked[0] == "score" else "error"},
    )
