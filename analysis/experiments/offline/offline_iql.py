"""Implicit Q-learning on logged tables: expectiles of what was logged, against cloning and fitted Q."""

from collections.abc import Iterator

import pandas as pd

from analysis.lab import Experiment, Plot, Seeds, columns, of_seeds
from analysis.worlds.offline_worlds import DISCOUNT, guessed_rewards, random_worlds, some_actions
from envs.logged_data import covering, skilled
from testbed.offline.tabular_offline import awr, clone, fitted_q, greedy, iql, policy_q

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
        says="Shows the score (0 the uniform policy, 1 the optimum) against how many of four actions the "
        "log has in a state, in random worlds of 8 states: cloning copies the log; one step is greedy in "
        "the log's own Q; fitted Q plans with guesses for unseen pairs; IQL weighs logged actions by their "
        "lead over an expectile of Q.",
    ),
    systems=("IQL",),
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
