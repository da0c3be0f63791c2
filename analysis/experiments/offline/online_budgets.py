"""Per-state budgets learned from online steps, against one budget for all: FamO2O's second half."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.experiments.offline.offline_famo2o import BUDGETS, best_budgets, family, mixed, taken
from analysis.lab import (
    Evidence,
    Experiment,
    Part,
    Plot,
    Seeds,
    columns,
    level,
    must_stay_below,
    of_seeds,
)
from analysis.worlds.offline_worlds import DISCOUNT, random_worlds
from envs.arrays import Floats
from envs.offline import Counts
from testbed.offline.tabular import clone, fitted_q, policy_q

NAME = "online-budgets"
SEEDS, OFFLINE = 96, 300
ONLINE = (100, 300, 1000, 3000)
MARGIN = 0.02


def learned(family_RBSA: Floats, counts: Counts) -> dict[str, Floats]:
    """Policies with one budget and with one per state, [R, S, A], chosen by the empirical model.

    A pair without data counts as worth nothing.
    """
    moves_RSBS = np.einsum("rbsa,rsat->rsbt", family_RBSA, counts.moves_RSAS)
    reward_RSB = np.einsum("rbsa,rsa->rsb", family_RBSA, counts.reward_RSA)
    per_state_RS = fitted_q(moves_RSBS, reward_RSB, DISCOUNT).argmax(-1)
    start_RBS = np.stack(
        [
            (pi_RSA * policy_q(counts.moves_RSAS, counts.reward_RSA, pi_RSA, DISCOUNT)).sum(-1)
            for pi_RSA in np.moveaxis(family_RBSA, 1, 0)
        ],
        axis=1,
    )
    single_R = start_RBS.mean(-1).argmax(-1)
    return {
        "one": taken(family_RBSA, np.repeat(single_R[:, None], family_RBSA.shape[2], 1)),
        "per state": taken(family_RBSA, per_state_RS),
    }


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return scores of the budgets that online steps choose, and of the best that there are."""
    worlds = random_worlds(seeds)
    counts = worlds.logged(mixed(seeds, worlds), OFFLINE, seeds, "offline log")
    mu_RSA = clone(counts.visit_RSA)
    family_RBSA = family(mu_RSA, policy_q(counts.moves_RSAS, counts.reward_RSA, mu_RSA, DISCOUNT))
    single_R, budget_RS = best_budgets(worlds, family_RBSA)
    bounds = {
        "one": worlds.score(taken(family_RBSA, np.repeat(single_R[:, None], 8, 1))),
        "per state": worlds.score(taken(family_RBSA, budget_RS)),
    }
    for steps in ONLINE:
        # Online, all budgets are played: the family's balance is drawn anew in every state.
        online = counts + worlds.logged(family_RBSA.mean(1), steps, seeds, f"online {steps}")
        for name, pi_RSA in learned(family_RBSA, online).items():
            score_R = worlds.score(pi_RSA)
            yield columns(seeds, steps=steps, budgets=name, score=score_R, bound=bounds[name])


EXPERIMENT = Experiment(
    NAME,
    question="Do online steps find trade-offs per state that are worth more than a single one?",
    source="Wang et al. (2023), Train once, get a family: state-adaptive balances (FamO2O)",
    differs="random worlds, tables; budgets are chosen by the model of all steps, the family stays",
    compute=of_seeds(NAME, rows, SEEDS, {"budgets": BUDGETS.tolist(), "offline": OFFLINE}),
    keys=("run", "seed", "steps", "budgets"),
    metrics=("score", "bound"),
    margins={"score": MARGIN},
    figure=Plot("final by setting", x="steps: online steps", y="score", arm=("budgets",), log="x"),
    systems={"FamO2O": Part()},
)


EXPERIMENT.claim(
    "budgets-learned-online-gain-per-state",
    """After 1000 online steps or more the budgets per state that these choose score 0.02 more than the
    single budget that they choose.""",
).compare("score", {"budgets": "per state"}, {"budgets": "one"}, by=MARGIN, over={"steps": ONLINE[2:]})


@EXPERIMENT.claim()
def budgets_learned_online_come_near_the_bound(table: pd.DataFrame) -> Evidence:
    """After 3000 online steps the chosen budgets per state lack less than 0.05 of the best score."""
    lacks = table.assign(lacks=table["bound"] - table["score"])
    found = level(lacks, "lacks", {"steps": ONLINE[-1], "budgets": "per state"})
    return must_stay_below(found, 0.05, "what is lacking")
