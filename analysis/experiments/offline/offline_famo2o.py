"""A single trade-off between improvement and constraint for all states, against one per state (FamO2O)."""

import numpy as np

from analysis.lab import Experiment, Plot, Rows, Seeds, ask, averaged, columns, generator, of_seeds
from analysis.worlds.offline_worlds import DISCOUNT, random_worlds
from envs.logged_data import skilled
from testbed.offline.tabular_offline import clone, fitted_q, policy_q, within_kl

NAME = "offline-famo2o"
SEEDS, WORLDS = 1024, 24
"""Units of a run, and random worlds averaged in a unit: the effect is near its margin."""
BUDGETS = np.array([0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0])
"""Allowed KL from mu in a state, in nats."""
STEPS = (100, 300, 1000)
MARGIN = 0.03


def rows(seeds: Seeds) -> Rows:
    """Return scores with one budget and with budgets per state, by the number of logged steps.

    The logger is near-optimal in half of the states and near-uniform in the others.
    """
    worlds = random_worlds(seeds)
    expert_RS1 = np.stack([generator(s, "experts").random((8, 1)) < 0.5 for s in seeds])
    logger_RSA = np.where(expert_RS1, skilled(worlds.best_RSA, 0.9), skilled(worlds.best_RSA, 0.1))
    for steps in STEPS:
        counts = worlds.logged(logger_RSA, steps, seeds, f"log of {steps}")
        mu_RSA = clone(counts.visit_RSA)
        q_RSA = policy_q(counts.moves_RSAS, counts.reward_RSA, mu_RSA, DISCOUNT)
        family_RBSA = np.stack([within_kl(mu_RSA, q_RSA, budget) for budget in BUDGETS], axis=1)
        each_BR = np.stack([worlds.value(family_RBSA[:, b]) for b in range(len(BUDGETS))])
        # With budgets as its actions the world has an optimal policy: the best budget of every state.
        moves_RSBS = np.einsum("rbsa,rsat->rsbt", family_RBSA, worlds.moves_RSAS)
        reward_RSB = np.einsum("rbsa,rsa->rsb", family_RBSA, worlds.reward_RSA)
        single_R, budget_RS = each_BR.argmax(0), fitted_q(moves_RSBS, reward_RSB, DISCOUNT).argmax(-1)
        for name, chosen_RS in (("one", np.repeat(single_R[:, None], 8, 1)), ("per state", budget_RS)):
            pi_RSA = np.take_along_axis(family_RBSA, chosen_RS[:, None, :, None], 1)[:, 0]
            yield columns(seeds, steps=steps, budgets=name, score=worlds.score(pi_RSA))


EXPERIMENT = Experiment(
    question="What is a trade-off between improvement and constraint in every state worth on mixed data?",
    source="Wang et al. (2023), Train once, get a family: state-adaptive balances (FamO2O)",
    differs="random worlds, tables; the true value chooses the budgets, so upper bounds are compared",
    compute=of_seeds(NAME, averaged(rows, WORLDS, ("score",)), SEEDS, {"budgets": BUDGETS.tolist()}),
    keys=("run", "seed", "steps", "budgets"), metrics=("score",), margins={"score": MARGIN},
    figure=Plot(
        "final by setting", x="steps: logged steps", y="score", arm=("budgets",),
        says="Shows the score (0 the uniform policy, 1 the optimum) against logged steps, in random worlds "
        "where the logger is good in half of the states; a budget is the KL by which a policy may leave the "
        "log in a state; one has a single budget for all states, per state one for each; the true value "
        "chooses both.",
    ),
    systems={"FamO2O": "upper bounds for budgets per state; learning the budgets online is not tested"},
)  # fmt: skip

ask(EXPERIMENT, "per-state-budgets-gain-on-mixed-data", "On mixed data the best per-state budgets score 0.03 "
    "more than the best single one, at each size, in the mean over units of 24 random worlds.",
    {"budgets": "per state"}, {"budgets": "one"}, MARGIN, "score", over={"steps": STEPS})  # fmt: skip
