"""A constraint toward the better part of the log (A2PR), against one toward all of it, on mixed data."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.lab import (
    Evidence,
    Experiment,
    Groups,
    Plot,
    Seeds,
    all_exceed,
    columns,
    difference,
    exact,
    must_stay_below,
    of_seeds,
    short_of,
)
from analysis.worlds.offline_worlds import DISCOUNT, random_policies, random_worlds
from envs.arrays import Floats
from envs.offline import skilled
from testbed.offline.continuous import local_mean, nearest_distance, penalized_actions, polynomial_critic
from testbed.offline.tabular import advantage, advantage_filtered, awr, clone, policy_q
from testbed.rng import generator

NAME = "offline-a2pr"
SEEDS, STEPS = 24, 600
STRENGTHS = (0.3, 1.0, 3.0)
MARGIN, FAR = 0.05, 0.02
GRID_S, GRID_A = np.linspace(-1, 1, 21), np.linspace(-2, 2, 161)


def tabular_rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return scores on tables; the log is one fifth near-optimal and four fifths uniform."""
    worlds = random_worlds(seeds)
    counts = worlds.logged(skilled(worlds.best_RSA, 0.2), STEPS, seeds, "mixed log")
    mu_RSA = clone(counts.visit_RSA)
    ahead_RSA = advantage(policy_q(counts.moves_RSAS, counts.reward_RSA, mu_RSA, DISCOUNT), mu_RSA)
    for pull in STRENGTHS:
        for name, base_RSA in (("all", mu_RSA), ("better", advantage_filtered(mu_RSA, ahead_RSA))):
            pi_RSA = awr(base_RSA, ahead_RSA, 1 / pull)
            far_R = np.where(counts.seen_RSA, 0.0, pi_RSA).sum((1, 2)) / 8
            found = {"score": worlds.score(pi_RSA), "far": far_R}
            yield columns(seeds, world="table", strength=pull, toward=name, **found)


def continuous_rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return scores on a bandit with real actions, best at 0.8 sin 2x; 30 % of the log are near it."""
    context_RN, action_RN, noise_RN = np.swapaxes(np.stack([_pulls(s) for s in seeds]), 0, 1)
    reward_RN = -((action_RN - best_action(context_RN)) ** 2) + noise_RN
    q_RSA = polynomial_critic(context_RN, action_RN, reward_RN, GRID_S, GRID_A, 3, 1e-3)
    good_RN = (reward_RN > _at(local_mean(context_RN, reward_RN, GRID_S, 0.2), context_RN)).astype(float)
    mean_RS = local_mean(context_RN, action_RN, GRID_S, 0.2)
    share_RS = local_mean(context_RN, good_RN, GRID_S, 0.2)
    better_RS = local_mean(context_RN, action_RN * good_RN, GRID_S, 0.2) / share_RS
    distance_RSA, _ = nearest_distance(context_RN, action_RN, GRID_S, GRID_A, 1.0)
    for pull in STRENGTHS:
        for name, center_RS in (("all", mean_RS), ("better", better_RS)):
            chosen_RS = penalized_actions(q_RSA, (GRID_A - center_RS[..., None]) ** 2, pull, GRID_A)
            index_RS = np.abs(chosen_RS[..., None] - GRID_A).argmin(-1)[..., None]
            far_R = (np.take_along_axis(distance_RSA, index_RS, -1) > 0.1**2).mean((1, 2))
            # The start of the scale is the value of an action drawn evenly from [-2, 2].
            lost_R = ((chosen_RS - best_action(GRID_S)) ** 2).mean(-1)
            worst = ((GRID_A - best_action(GRID_S)[:, None]) ** 2).mean()
            found = {"score": 1 - lost_R / worst, "far": far_R}
            yield columns(seeds, world="continuous", strength=pull, toward=name, **found)


def best_action(context_x: Floats) -> Floats:
    """The action that pays most."""
    return np.asarray(0.8 * np.sin(2 * context_x))


def _pulls(seed: int) -> Floats:
    """200 contexts, actions and reward noises; poor actions are 1 below the best with spread 0.3, [3, N]."""
    rng = generator(seed, "pulls")
    context_N, expert_N = rng.uniform(-1, 1, 200), rng.random(200) < 0.3
    near_N, poor_N = rng.normal(0, 0.1, 200), rng.normal(-1.0, 0.3, 200)
    action_N = best_action(context_N) + np.where(expert_N, near_N, poor_N)
    return np.stack([context_N, action_N, rng.normal(0, 0.1, 200)])


def _at(table_RS: Floats, context_RN: Floats) -> Floats:
    index_RN = np.abs(context_RN[..., None] - GRID_S).argmin(-1)
    return np.take_along_axis(table_RS, index_RN, -1)


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return the scores of both worlds."""
    yield from tabular_rows(seeds)
    yield from continuous_rows(seeds)


EXPERIMENT = Experiment(
    NAME,
    question="Does a constraint toward the better logged actions beat one toward all of them?",
    source="Liu et al. (2024), Adaptive advantage-guided policy regularization for offline RL (A2PR)",
    differs="tables and a polynomial critic; logged actions are filtered, where A2PR also generates some",
    compute=of_seeds(NAME, rows, SEEDS, {"steps": STEPS}),
    keys=("run", "seed", "world", "strength", "toward"),
    metrics=("score", "far"),
    margins={"score": MARGIN, "share of actions far from the log": FAR},
    figure=Plot(
        "final by dial",
        x="strength: strength of the constraint",
        y="score: score (1 optimal)",
        arm=("world", "toward"),
    ),
    systems=("A2PR",),
)


def _by_world(table: pd.DataFrame, value: str) -> Groups:
    better, every, worlds = {"toward": "better"}, {"toward": "all"}, ("table", "continuous")
    return difference(table, value, better, every, world=worlds, strength=STRENGTHS)


@EXPERIMENT.claim(source="policy improvement theorem, with A^mu >= 0 on what is kept")
def filtered_cloning_never_loses() -> Evidence:
    """mu kept to actions with A^mu >= 0 is worth at least as much as mu in every state, and more in most."""
    seeds = tuple(range(20))
    worlds, mu_RSA = random_worlds(seeds), random_policies(seeds, 8, 4, "mu", 0.5)
    q_RSA = worlds.q(mu_RSA)
    pi_RSA = advantage_filtered(mu_RSA, advantage(q_RSA, mu_RSA))
    gain_RS = (pi_RSA * worlds.q(pi_RSA)).sum(-1) - (mu_RSA * q_RSA).sum(-1)
    return exact(
        [*(-gain_RS).ravel(), short_of(float(np.median(gain_RS)), 0.1)], 1e-9, "largest loss of value"
    )


EXPERIMENT.claim(
    "advantage-filter-beats-cloning",
    statement="The filtered constraint's score is higher by 0.05 at each strength.",
)(all_exceed(MARGIN, "gain of score", _by_world, "score"))


@EXPERIMENT.claim()
def advantage_filter_stays_as_near_the_log(table: pd.DataFrame) -> Evidence:
    """Its actions lie far from the log less than 0.02 more often.

    Return the evidence in both worlds and runs; pairs that are all equal are left out.
    """
    groups = {name: x_N for name, x_N in _by_world(table, "far").items() if np.ptp(x_N) > 0}
    return must_stay_below(groups, FAR, "added share of far actions")
