"""Implicit Q-learning on logged tables: expectiles over logged actions, against cloning and fitted Q."""

import dataclasses
from functools import cache

import numpy as np

from analysis.lab import Grid, Groups, Plot, Seeds, TunedArms, ask, generator
from analysis.worlds.offline_worlds import DISCOUNT, Worlds, guessed_rewards, random_worlds, some_actions
from envs.finite_mdp import FiniteMDP
from envs.logged_data import Counts, covering, skilled
from testbed.offline.tabular_offline import awr, clone, fitted_q, greedy, iql, policy_q

NAME = "offline-iql"
SEEDS, PILOTS, STEPS, STATES, ACTIONS = 256, 96, 600, 8, 4
KEPT, WORLDS = (1, 2, 3, 4), ("random", "stitching")
ARMS: dict[str, Grid] = {
    "cloning": {},
    "one step": {},
    "fitted Q": {},
    "IQL": {"tau": (0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999), "beta": (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)},
}
"""IQL's expectile and inverse temperature."""
MARGIN = 0.05
"""Margin of the score. Set before the table was made, as the grids were."""


def corridor(world: FiniteMDP, seed: int) -> FiniteMDP:
    """Return a corridor with four actions: one leads on, a lure pays a little and leads back to the start, a
    third leads back for nothing, and the last stays. Their order is random in every state. The last state
    pays 1.

    A logger that seldom moves on reaches the end in fragments, and Q of that logger prefers the lures. Near
    the start a lure can be the best action.
    """
    rng, states = generator(seed, f"{NAME} corridor"), np.arange(STATES)
    role_SA = rng.permuted(np.tile(np.arange(ACTIONS), (STATES, 1)), axis=1)
    on_S, end_S = np.minimum(states + 1, STATES - 1), states == STATES - 1
    to_SA = np.select([role_SA == 0, role_SA == 3], [on_S[:, None], states[:, None]], 0)
    moves_SAS = 0.9 * np.eye(STATES)[np.where(end_S[:, None], 0, to_SA)] + 0.1 / STATES
    reward_SA = np.where(end_S[:, None], 1.0, rng.uniform(0.01, 0.1, (STATES, 1)) * (role_SA == 1))
    return dataclasses.replace(world, transition_SAS=moves_SAS, reward_SA=reward_SA, noise_std=0.1)


@cache
def given(seeds: Seeds, world: str, logged: int) -> tuple[Worlds, Counts]:
    """Return worlds and their logs of 600 steps, in which a state has so many logged actions."""
    worlds = random_worlds(seeds, states=STATES, actions=ACTIONS)
    if world == "stitching":
        worlds = Worlds.of(tuple(corridor(w, seed) for w, seed in zip(worlds.worlds, seeds, strict=True)))
    best_RSA = worlds.best_RSA
    allowed_RSA = some_actions(seeds, STATES, ACTIONS, logged, "covered")
    if world == "stitching":
        score_RSA = allowed_RSA + 2.0 * best_RSA  # without a logged way on, nothing can be stitched
        allowed_RSA = (score_RSA.argsort(-1, kind="stable").argsort(-1) >= ACTIONS - logged) & (score_RSA > 0)
    return worlds, worlds.logged(covering(skilled(best_RSA, 0.2), allowed_RSA), STEPS, seeds, "log")


def learn(seeds: Seeds, arm: str, world: str, logged: int, tau: float = 0.5, beta: float = 1.0) -> Groups:
    """Return the score of a learner, [R]."""
    worlds, counts = given(tuple(seeds), world, logged)
    mu_RSA, model = clone(counts.visit_RSA), (counts.moves_RSAS, counts.reward_RSA)
    if arm == "cloning":
        pi_RSA = mu_RSA
    elif arm == "one step":
        pi_RSA = greedy(policy_q(*model, mu_RSA, DISCOUNT), counts.seen_RSA)
    elif arm == "fitted Q":
        pi_RSA = greedy(fitted_q(model[0], guessed_rewards(counts, seeds), DISCOUNT))
    else:
        q_RSA, value_RS = iql(*model, mu_RSA, DISCOUNT, tau)
        pi_RSA = awr(mu_RSA, q_RSA - value_RS[..., None], beta)
    return {"score": worlds.score(pi_RSA)}


CELLS = {"world": WORLDS, "logged": KEPT}
EXPERIMENT = TunedArms(ARMS, learn, "score", PILOTS, CELLS, fine=True).experiment(
    NAME, SEEDS, ("score",), {"steps": STEPS},
    question="Does expectile regression on logged actions come near the best policy that the log supports?",
    source="Kostrikov, Nair & Levine (2022), Offline reinforcement learning with implicit Q-learning",
    differs="worlds of 8 states and 4 actions, tables; Q of an unseen pair is a normal draw of Q's size",
    margins={"share of the way from the uniform policy to the optimum": MARGIN},
    figure=Plot(
        "final by setting", x="logged: actions logged in a state, of 4",
        y="score: score (0 uniform, 1 optimal)", arm=("world", "arm"),
        says="Shows the score (0 the uniform policy, 1 the optimum) against the number of logged actions in "
        "a state, of four, in random worlds of 8 states and in corridors whose way must be stitched from "
        "fragments; cloning copies the log; one step is greedy in the log's own Q; fitted Q plans with "
        "guesses for unseen pairs; IQL weighs logged actions by their lead over an expectile of Q, tuned.",
    ),
    systems=("IQL",),
)  # fmt: skip
for _name, _statement, _rival, _by, _worlds, _logged in (
    ("iql-beats-cloning", "From two logged actions a state on tuned IQL scores 0.05 more than cloning, in "
     "both kinds of worlds.", "cloning", MARGIN, WORLDS, KEPT[1:]),
    ("iql-beats-one-step", "From two logged actions a state on tuned IQL scores more than one step of "
     "improvement, in both kinds of worlds.", "one step", 0.0, WORLDS, KEPT[1:]),
    ("iql-stitches", "In corridors tuned IQL scores 0.05 more than one step of improvement, from two logged "
     "actions a state on.",
     "one step", MARGIN, "stitching", KEPT[1:]),
    ("iql-beats-fitted-q-where-actions-are-missing", "With one to three of four actions logged tuned IQL "
     "scores 0.05 more than fitted Q with wild guesses for unseen pairs.",
     "fitted Q", MARGIN, WORLDS, KEPT[:3]),
    ("iql-beats-fitted-q-where-it-has-a-choice", "With two or three of four actions logged tuned IQL scores "
     "0.05 more than fitted Q with wild guesses for unseen pairs.", "fitted Q", MARGIN, WORLDS, KEPT[1:3]),
):  # fmt: skip
    over = {"world": _worlds, "logged": _logged}
    ask(EXPERIMENT, _name, _statement, "IQL", _rival, _by, "score", over=over)
