"""Offline updates that are taken only when a lower bound says that they gain (RL-100), against taking all."""

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
    must_stay_below,
    of_seeds,
    short_of,
)
from analysis.worlds.trajectory_worlds import noisy_world
from envs.arrays import Bools, Floats
from envs.finite_mdp import FiniteMDP
from envs.mdps import garnet
from envs.offline import Log, collect, skilled
from testbed.exact import mdp
from testbed.offline.gated import accepts, gain_terms, log_weights, share_of_episodes
from testbed.offline.tabular import advantage, awr, greedy, optimal_q, policy_q
from testbed.rng import generator, keys

NAME = "offline-rl100"
SEEDS, UPDATES = 240, 6
EPISODES = (25, 100, 400)
LEVEL = 0.95
"""Confidence of the gate: a harmful update is declared to pass with a chance of at most 0.05."""
PER_ROW = 10
"""Replications behind a row."""


def world() -> FiniteMDP:
    """6 states, 3 actions, 8 steps, noisy rewards."""
    return garnet(states=6, actions=3, branching=3, seed=3, horizon=8, discount=0.9, noise_std=0.5)


def updates(found: FiniteMDP, seeds: Seeds, episodes: int, gated: bool) -> dict[str, Floats]:
    """Take up to 6 weighted-cloning updates by a critic of 6 episodes, gated on `episodes` others.

    Returned per replication: shares of updates that are harmful, and harmful and taken, value lost on the
    way, final value, ESS.
    """
    size = len(seeds)
    best_SA = greedy(optimal_q(found))[0]
    mu_RWSA = np.broadcast_to(skilled(best_SA, 0.2), (size, 1, 6, 3))
    critic = collect(found, mu_RWSA, 6, keys(seeds, "critic")).counts(6, 3)
    gate = collect(found, mu_RWSA, episodes, keys(seeds, "gate"))
    pi_RSA, harmful_R, taken_R, lost_R = mu_RWSA[:, 0], np.zeros(size), np.zeros(size), np.zeros(size)
    for _ in range(UPDATES):
        q_RSA = policy_q(critic.moves_RSAS, critic.reward_RSA, pi_RSA, 0.9)
        new_RSA = awr(pi_RSA, advantage(q_RSA, pi_RSA), 1.0)
        gain_R = found.value(new_RSA) - found.value(pi_RSA)
        proven_R = accepts(gain_terms(gate, new_RSA, pi_RSA, mu_RWSA, 0.9), LEVEL)
        passed_R = proven_R if gated else np.ones(size, dtype=bool)
        harmful_R += gain_R < 0
        taken_R += passed_R & (gain_R < 0)
        lost_R += np.where(passed_R, np.maximum(-gain_R, 0.0), 0.0)
        pi_RSA = np.where(passed_R[:, None, None], new_RSA, pi_RSA)
    ess_R = share_of_episodes(gate, pi_RSA, mu_RWSA)
    share = {"harmful": harmful_R / UPDATES, "false": taken_R / UPDATES}
    return {**share, "lost": lost_R, "value": found.value(pi_RSA), "ess": ess_R}


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return means over 10 replications a row, by episodes behind the gate."""
    found = world()
    for episodes in EPISODES:
        for name in ("gated", "ungated"):
            made = updates(found, seeds, episodes, name == "gated")
            means = {key: x_R.reshape(-1, PER_ROW).mean(-1) for key, x_R in made.items()}
            yield columns(seeds[::PER_ROW], episodes=episodes, updates=name, **means)


EXPERIMENT = Experiment(
    NAME,
    question=(
        "Does a lower bound in front of every offline update keep harmful ones out at its declared rate?"
    ),
    source="Lei et al. (2025), RL-100",
    differs="one random world, tables; importance sampling in place of a model, one log judges all updates",
    compute=of_seeds(NAME, rows, SEEDS, {"level": LEVEL, "updates": UPDATES, "per_row": PER_ROW}),
    keys=("run", "seed", "episodes", "updates"),
    metrics=("harmful", "false", "lost", "value", "ess"),
    margins={"share of updates that are harmful and taken": 1 - LEVEL},
    figure=Plot(
        "final by dial",
        x="episodes: episodes behind the gate",
        y="false: share of updates harmful and taken",
        arm=("updates",),
    ),
    systems=("RL-100",),
)


@EXPERIMENT.claim(source="per-decision importance sampling, Precup, Sutton & Singh (2000)")
def gate_sums_the_gain_of_an_update() -> Evidence:
    """Over every episode of small worlds the gate's terms have the update's true gain as their mean, and
    whole-episode weights have mean 1.
    """
    gaps, gains = [], []
    for seed in range(5):
        small, pi_SA, mu_SA, _ = noisy_world(seed)
        found = mdp.enumerate_episodes(small, mu_SA)
        other_SA = generator(seed, "other").dirichlet([2.0, 2.0], size=3)
        log = _as_log(found.state_NT, found.action_NT, found.reward_NT, found.mask_NT)
        given = [x_SA[None] for x_SA in (pi_SA, other_SA)]
        terms_N = gain_terms(log, given[0], given[1], mu_SA[None, None], small.discount)[0]
        gains.append(float(small.value(pi_SA) - small.value(other_SA)))
        weight_N = np.exp(log_weights(log, given[0], mu_SA[None, None])[0, :, -1])
        gaps += [found.probability_N @ terms_N - gains[-1], found.probability_N @ weight_N - 1]
    return exact(
        [*np.abs(gaps), short_of(max(np.abs(gains)), 0.05)], 1e-12, "largest distance over all episodes"
    )


def _as_log(state_BT: np.ndarray, action_BT: np.ndarray, reward_BT: Floats, mask_BT: Bools) -> Log:
    """Episodes as one cell of a log, without next states."""
    nothing_BT = np.zeros_like(state_BT)
    return Log(
        state_RBT=state_BT[None],
        action_RBT=action_BT[None],
        reward_RBT=reward_BT[None],
        next_RBT=nothing_BT[None],
        going_RBT=nothing_BT[None] > 0,
        mask_RBT=mask_BT[None],
        source_RB=np.zeros((1, len(state_BT)), dtype=np.int64),
    )


@EXPERIMENT.claim()
def gate_keeps_its_declared_rate(table: pd.DataFrame) -> Evidence:
    """Over logs of 25 to 400 episodes less than 5 % of the proposed updates are harmful and pass the gate.

    Return the evidence about the mean over sizes, in both runs: alone, a size may have none at all.
    """
    means = table.groupby(["run", "seed", "updates"])[["false"]].mean().reset_index()
    found = level(means, "false", {"updates": "gated"})
    return must_stay_below(found, 1 - LEVEL, "share of harmful updates taken")


EXPERIMENT.claim(
    "ungated-updates-break-that-rate", "Without the gate more than 5 % of the updates are harmful and taken."
).compare("false", {"updates": "ungated", "episodes": EPISODES[0]}, by=1 - LEVEL)

EXPERIMENT.claim(
    "gated-updates-end-higher", "With 400 episodes behind the gate the final value is higher than without it."
).compare("value", {"updates": "gated"}, {"updates": "ungated"}, over={"episodes": EPISODES[-1]})
