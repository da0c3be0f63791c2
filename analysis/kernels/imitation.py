"""Imitation: weights and rewards of boosted replay, compounding error against on-policy correction."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from envs import infinite_horizon
from envs.arrays import Floats
from envs.finite_mdp import FiniteMDP
from envs.logged_data import Counts, collect
from testbed.offline.tabular_offline import greedy


def replay_weights(rounds: int, boost: ArrayLike) -> Floats:
    """Weights (1 - boost)^(t - k), normalized, of the policies k = 1 … t in round t's replay, [*boost,
    rounds].

    boost 1 keeps only the newest policy (on policy), 0 weighs all equally (uniform replay); values between
    are boosting with that step. Source: AILBoost (Chang et al. 2024), the weights of its ensemble.
    """
    boost_x1 = np.asarray(boost, np.float64)[..., None]
    weight_xK = (1.0 - boost_x1) ** np.arange(rounds)[::-1]
    return np.asarray(weight_xK / weight_xK.sum(-1, keepdims=True))


def discriminator_reward(expert_RSA: Floats, replay_RSA: Floats, floor: float = 1e-3) -> Floats:
    """log (d_expert + floor) - log (d_replay + floor), [R, S, A]: the optimal discriminator's logit on a
    table.

    Source: Ho & Ermon (2016), the optimal discriminator, as AILBoost uses it.
    """
    return np.log(expert_RSA + floor) - np.log(replay_RSA + floor)


def occupancy(world: FiniteMDP, pi_RSA: Floats) -> Floats:
    """(1 - discount) sum_t discount^t P(s_t, a_t), [R, S, A]; sums to 1 in worlds that never end.

    Source: Puterman (1994), section 6.9.
    """
    law_RS = (1 - world.discount) * infinite_horizon.occupancy(world, pi_RSA)
    return np.asarray(law_RS[..., None] * pi_RSA)


def cloned(counts: Counts, fallback: int = 0) -> Floats:
    """The most frequent logged action, and `fallback` in states without data, [R, S, A]."""
    unseen_RS1 = ~counts.seen_RSA.any(-1, keepdims=True)
    return np.where(unseen_RS1, np.eye(counts.visit_RSA.shape[-1])[fallback], greedy(counts.visit_RSA))


def corrected(
    world: FiniteMDP, expert_SA: Floats, key_R: NDArray[np.uint64], *, rounds: int, episodes: int
) -> tuple[Floats, Floats]:
    """Exact shortfall J(expert) - J of cloning and of on-policy correction at equal data, [I, R] each.

    Each round adds `episodes` labeled episodes: cloning adds the expert's, correction (DAgger, Ross, Gordon &
    Bagnell 2011) the current learner's with the expert's labels. In the first round both add the expert's.
    """
    best = float(world.value(expert_SA))
    expert_RSA = np.broadcast_to(expert_SA, (len(key_R), *expert_SA.shape))
    rows: list[list[Floats]] = [[], []]
    first = collect(world, expert_RSA[:, None], episodes, key_R).counts(world.states, world.actions)
    data = [first, first]
    for i in range(rounds):
        for arm, counts in enumerate(data):
            learner_RSA = cloned(counts)
            rows[arm].append(best - world.value(learner_RSA))
            player_RSA = learner_RSA if arm else expert_RSA
            log = collect(world, player_RSA[:, None], episodes, key_R, step=2 * i + 1 + arm)
            visit_RS1 = log.counts(world.states, world.actions).visit_RSA.sum(-1, keepdims=True)
            labeled = Counts(visit_RS1 * expert_SA, np.zeros((*expert_RSA.shape, 0)), 0 * expert_RSA)
            data[arm] = Counts(counts.visit_RSA + labeled.visit_RSA, counts.going_RSAS, counts.reward_RSA)
    return np.stack(rows[0]), np.stack(rows[1])
