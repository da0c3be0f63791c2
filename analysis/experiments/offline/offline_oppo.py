"""Policies from preferred trajectories without a reward (OPPO), against a reward model and planning."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.lab import Evidence, Experiment, Plot, Seeds, columns, exact, of_seeds, short_of
from envs.arrays import Floats
from envs.finite_mdp import FiniteMDP
from envs.mdps import garnet
from envs.offline import Log, collect, skilled
from testbed.offline.hindsight import context_mixture, episode_features, fit_neighbors, neighbor_labels
from testbed.offline.tabular import fitted_q, greedy, optimal_q
from testbed.rng import keys

NAME = "offline-oppo"
SEEDS, CONTEXTS = 24, 3
EPISODES = (50, 200, 800)
SCALE = 1.0
"""Difference of returns at which the better episode is preferred with odds of e."""
QUALITIES = (0.0, 0.4, 0.8)
MARGIN = 0.0


def worlds(seeds: Seeds) -> list[FiniteMDP]:
    """A random world per seed: 8 states, 4 actions, 10 steps, rewards without noise."""
    return [garnet(states=8, actions=4, branching=3, seed=s, horizon=10, discount=0.9) for s in seeds]


def optimum(world: FiniteMDP) -> Floats:
    """A policy that is best without a horizon, [S, A]."""
    return greedy(optimal_q(world))[0]


def mixed_log(world: FiniteMDP, seed: int, episodes: int) -> tuple[Log, Floats]:
    """Episodes of three loggers of rising quality in shuffled order, and labels of neighbors."""
    mu_WSA = skilled(optimum(world), np.array(QUALITIES))
    order_B = np.random.default_rng([seed, 4]).permutation(episodes)
    log = collect(world, mu_WSA[None], episodes, keys((seed,), "episodes"))
    fields = ("state_RBT", "action_RBT", "reward_RBT", "next_RBT", "going_RBT", "mask_RBT", "source_RB")
    shuffled = Log(*(getattr(log, name)[:, order_B] for name in fields))
    return shuffled, neighbor_labels(shuffled.returns_to_go(0.9)[..., 0], SCALE, keys((seed,), "labels"))


def hindsight_policy(log: Log, label_RP: Floats, seed: int) -> Floats:
    """The policy of the context that explains preferred episodes best, [S, A]."""
    policy_RZSA, share_RBZ = context_mixture(log, CONTEXTS, 8, 4, keys((seed,), "contexts"))
    return np.asarray(policy_RZSA[0, fit_neighbors(share_RBZ, label_RP, 1e-2)[0].argmax()])


def two_stage_policy(log: Log, label_RP: Floats) -> Floats:
    """Planning in the logged model with a reward table fitted to the same labels, [S, A]."""
    counts = log.counts(8, 4)
    reward_RSA = fit_neighbors(episode_features(log, 8, 4, 0.9), label_RP, 1.0).reshape(1, 8, 4)
    q_RSA = fitted_q(counts.moves_RSAS, reward_RSA, 0.9, counts.seen_RSA)
    return greedy(q_RSA, counts.seen_RSA)[0]


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return regrets to the best stationary policy, by the number of logged episodes."""
    for episodes in EPISODES:
        regret: dict[str, list[float]] = {"hindsight": [], "reward model": [], "all data": []}
        for seed, world in zip(seeds, worlds(seeds), strict=True):
            log, label_RP = mixed_log(world, seed, episodes)
            best = world.value(optimum(world))
            learned = {
                "hindsight": hindsight_policy(log, label_RP, seed),
                "reward model": two_stage_policy(log, label_RP),
                "all data": skilled(optimum(world), float(np.mean(QUALITIES))),
            }
            for name, pi_SA in learned.items():
                regret[name].append(float(best - world.value(pi_SA)))
        for name, x in regret.items():
            yield columns(seeds, episodes=episodes, learner=name, regret=x)


EXPERIMENT = Experiment(
    NAME,
    question="Can preferred trajectories teach a policy without a reward in between?",
    source="Kang et al. (2023), Beyond reward: offline preference-guided policy optimization (OPPO)",
    differs=(
        "random worlds, a mixture of three tables in place of a transformer; regret can be a little "
        "negative, as the best stationary policy is that without a horizon"
    ),
    compute=of_seeds(NAME, rows, SEEDS, {"contexts": CONTEXTS, "scale": SCALE}),
    keys=("run", "seed", "episodes", "learner"),
    metrics=("regret",),
    margins={"regret": MARGIN},
    figure=Plot("final by dial", x="episodes: logged episodes", y="regret", arm=("learner",)),
    systems=("OPPO",),
)


@EXPERIMENT.claim(source="expectation maximization, Dempster, Laird & Rubin (1977)")
def hindsight_contexts_are_a_fixed_point() -> Evidence:
    """After enough rounds contexts are the weighted clones of the episodes that they explain, shares are
    Bayes' rule under them, and a context prefers what its score says.

    Return distances from both halves of the fixed point, and from a law of preferences, in 3 worlds.
    """
    gaps = []
    for seed, world in enumerate(worlds((0, 1, 2))):
        log, label_RP = mixed_log(world, seed, 60)
        policy_RZSA, share_RBZ = context_mixture(log, 2, 8, 4, keys((seed,), "contexts"), rounds=400)
        count_BX = episode_features(log, 8, 4, 1.0)[0]
        mass_ZSA = (share_RBZ[0].T @ count_BX).reshape(2, 8, 4) + 0.1
        gaps.append(np.abs(mass_ZSA / mass_ZSA.sum(-1, keepdims=True) - policy_RZSA[0]).max())
        joint_BZ = np.exp(count_BX @ np.log(policy_RZSA[0].reshape(2, -1)).T) * share_RBZ[0].mean(0)
        gaps.append(np.abs(joint_BZ / joint_BZ.sum(-1, keepdims=True) - share_RBZ[0]).max())
        theta_F = fit_neighbors(share_RBZ, label_RP, 1e-2)[0]
        diff_PF = share_RBZ[0, 0::2] - share_RBZ[0, 1::2]
        chance_P = 1 / (1 + np.exp(-diff_PF @ theta_F))
        # First-order condition of the penalized likelihood.
        gaps.append(np.abs(diff_PF.T @ (label_RP[0] - chance_P) - 1e-2 * theta_F).max())
        gaps.append(short_of(float(share_RBZ[0].std()), 0.1))
    return exact(gaps, 1e-6, "largest distance from a fixed point")


EXPERIMENT.claim(
    "hindsight-beats-all-data",
    "The preferred context's policy has less regret than the loggers' average, at each size.",
).compare("regret", {"learner": "all data"}, {"learner": "hindsight"}, by=MARGIN, over={"episodes": EPISODES})


EXPERIMENT.claim(
    "hindsight-beats-the-reward-model",
    "Without a reward the regret is lower than with a reward model and planning, at each size.",
).compare(
    "regret", {"learner": "reward model"}, {"learner": "hindsight"}, by=MARGIN, over={"episodes": EPISODES}
)
