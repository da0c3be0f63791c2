"""Implicit Q-learning on logged tables: expectiles of what was logged, against cloning and fitted Q."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.lab import Evidence, Experiment, Plot, Seeds, columns, exact, of_seeds, short_of
from analysis.worlds.offline_worlds import (
    DISCOUNT,
    guessed_rewards,
    random_policies,
    random_worlds,
    some_actions,
)
from envs.offline import covering, skilled
from testbed.offline.tabular import advantage, awr, clone, fitted_q, greedy, iql, policy_q

NAME = "offline-iql"
SEEDS, STEPS = 24, 600
KEPT = (1, 2, 3, 4)
TAU, BETA = 0.9, 10.0
MARGIN = 0.05


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return scores of four learners, by the number of actions that the logger takes in a state."""
    worlds = random_worlds(seeds)
    for kept in KEPT:
        allowed_RSA = some_actions(seeds, 8, 4, kept, "covered")
        counts = worlds.logged(covering(skilled(worlds.best_RSA, 0.2), allowed_RSA), STEPS, seeds, "log")
        mu_RSA, model = clone(counts.visit_RSA), (counts.moves_RSAS, counts.reward_RSA)
        q_RSA, value_RS = iql(*model, mu_RSA, DISCOUNT, TAU)
        learned = {
            "cloning": mu_RSA,
            "one step": greedy(policy_q(*model, mu_RSA, DISCOUNT), counts.seen_RSA),
            "fitted Q": greedy(fitted_q(model[0], guessed_rewards(counts, seeds), DISCOUNT)),
            "IQL": awr(mu_RSA, q_RSA - value_RS[..., None], BETA),
        }
        for name, pi_RSA in learned.items():
            yield columns(seeds, logged=kept, learner=name, score=worlds.score(pi_RSA))


EXPERIMENT = Experiment(
    NAME,
    question="Does expectile regression on logged actions come near the best policy that the log supports?",
    source="Kostrikov, Nair & Levine (2022), Offline reinforcement learning with implicit Q-learning",
    differs=(
        "random worlds of 8 states and 4 actions, tables; an unseen pair's Q is a normal number of Q's size"
    ),
    compute=of_seeds(NAME, rows, SEEDS, {"steps": STEPS, "tau": TAU, "beta": BETA}),
    keys=("run", "seed", "logged", "learner"),
    metrics=("score",),
    margins={"share of the way from the uniform policy to the optimum": MARGIN},
    figure=Plot(
        "final by setting",
        x="logged: actions logged in a state, of 4",
        y="score: score (0 uniform, 1 optimal)",
        arm=("learner",),
    ),
    systems=("IQL",),
)


@EXPERIMENT.claim(source="Kostrikov, Nair & Levine (2022), lemma 1 and theorem 3")
def iql_runs_from_mu_to_the_best_supported_value() -> Evidence:
    """V_tau is V^mu at tau = 1/2, never falls in tau, never passes the best value within mu's support, and is
    within 0.01 of it at tau = 1 - 1e-5, whatever rewards and moves of unseen actions are.
    """
    seeds = tuple(range(8))
    worlds = random_worlds(seeds, states=6)
    seen_RSA = some_actions(seeds, 6, 4, 2, "covered")
    mu_RSA = covering(random_policies(seeds, 6, 4, "mu") + 0.05, seen_RSA)
    # Unseen actions promise a million and move at random.
    reward_RSA = np.where(seen_RSA, worlds.reward_RSA, 1e6)
    moves_RSAS = np.where(seen_RSA[..., None], worlds.moves_RSAS, 1 / 6)
    values = [iql(moves_RSAS, reward_RSA, mu_RSA, DISCOUNT, t)[1] for t in (0.5, 0.7, 0.9, 0.99, 1 - 1e-5)]
    best_RSA = fitted_q(worlds.moves_RSAS, worlds.reward_RSA, DISCOUNT, seen_RSA)
    best_RS = np.where(seen_RSA, best_RSA, -np.inf).max(-1)
    start_RS = (mu_RSA * worlds.q(mu_RSA)).sum(-1)
    falls = [float((a - b).max()) for a, b in zip(values, [*values[1:], best_RS], strict=True)]
    away = float(np.abs(values[0] - start_RS).max()), float((best_RS - values[-1]).max()) - 0.01
    # The path must lead somewhere for all this to say something.
    return exact([*falls, *away, short_of(float((best_RS - start_RS).min()), 0.01)], 1e-8, "largest excess")


@EXPERIMENT.claim()
def iql_policy_takes_logged_actions_alone() -> Evidence:
    """IQL's advantage-weighted policy has no mass outside the log; greedy fitted Q has, when Q is wrong."""
    seeds = tuple(range(8))
    worlds, seen_RSA = random_worlds(seeds), some_actions(seeds, 8, 4, 2, "covered")
    mu_RSA = covering(np.full(seen_RSA.shape, 0.25), seen_RSA)
    reward_RSA = np.where(seen_RSA, worlds.reward_RSA, 10.0)
    q_RSA, value_RS = iql(worlds.moves_RSAS, reward_RSA, mu_RSA, DISCOUNT, TAU)
    outside = awr(mu_RSA, advantage(q_RSA, mu_RSA) + value_RS[..., None], BETA)[~seen_RSA].max()
    trusting_RSA = greedy(fitted_q(worlds.moves_RSAS, reward_RSA, DISCOUNT))
    return exact(
        [outside, short_of(float(trusting_RSA[~seen_RSA].sum() / 64), 0.5)], 0.0, "mass outside the log"
    )


EXPERIMENT.claim(
    "iql-beats-cloning", "From two logged actions a state on IQL beats cloning by 0.05."
).compare("score", {"learner": "IQL"}, {"learner": "cloning"}, by=MARGIN, over={"logged": (2, 3, 4)})

EXPERIMENT.claim(
    "iql-beats-one-step", "From two logged actions a state on IQL beats one step by 0.05."
).compare("score", {"learner": "IQL"}, {"learner": "one step"}, by=MARGIN, over={"logged": (2, 3, 4)})

EXPERIMENT.claim(
    "iql-beats-fitted-q-where-actions-are-missing",
    "With one to three of four actions logged, IQL beats fitted Q with wild guesses by 0.05.",
).compare("score", {"learner": "IQL"}, {"learner": "fitted Q"}, by=MARGIN, over={"logged": (1, 2, 3)})
