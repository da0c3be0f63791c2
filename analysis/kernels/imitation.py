"""Imitation: weights and rewards of boosted replay, occupancies."""

import numpy as np
from numpy.typing import ArrayLike

from envs import infinite_horizon
from envs.arrays import Floats
from envs.finite_mdp import FiniteMDP


def replay_weights(rounds: int, boost: ArrayLike) -> Floats:
    """Normalized weights (1 - boost)^(t - k) of policies k = 1 … t in round t's replay, [*boost, rounds].

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
