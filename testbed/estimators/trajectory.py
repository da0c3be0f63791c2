"""Importance sampling over whole episodes and per decision, plain and self-normalized.

All need mu > 0 wherever pi > 0. ess is the Kish ESS of the sequence weights w_{0:T-1}.
"""

from __future__ import annotations

import numpy as np

from testbed.estimators import Estimate, estimator, kish_ess, mean_of_terms
from testbed.estimators.trajectory_weights import Floats, LoggedEpisodes


@estimator(
    "trajectory_is",
    source="Precup, Sutton & Singh (2000), ICML",
    family="trajectory",
    unbiased=True,
    linear=True,
)
def trajectory_is(episodes: LoggedEpisodes) -> Estimate:
    """mean over i of w_{0:T-1} G, G = sum_t gamma^t r_t.

    Variance E_mu[w^2 G^2] - J^2, exponential in T; adding a constant to the rewards changes it.
    """
    weight_N = episodes.whole_weight_N
    return mean_of_terms(weight_N * episodes.return_N, weight_N)


@estimator("trajectory_wis", source="Precup, Sutton & Singh (2000), ICML", family="trajectory")
def trajectory_wis(episodes: LoggedEpisodes) -> Estimate:
    """sum w_{0:T-1} G / sum w_{0:T-1}, sums over i.

    Biased, O(1/N): for N = 1 it is G, whose mean is the behavior policy's value. Stays within the range of
    G and follows a shift of G by a constant.
    """
    share_N = episodes.whole_share_N
    return ratio_estimate((share_N * episodes.return_N).sum(-1), share_N * episodes.return_N, share_N)


@estimator(
    "pdis", source="Precup, Sutton & Singh (2000), ICML", family="trajectory", unbiased=True, linear=True
)
def pdis(episodes: LoggedEpisodes) -> Estimate:
    """mean over i of sum_t gamma^t w_{0:t} r_t.

    Its variance is not always below that of trajectory_is: rewards that cancel within an episode no longer
    do when they are weighted apart. Equal to it, episode by episode, when only the last step is rewarded.
    """
    terms_N = np.einsum("...nt,...nt,t->...n", episodes.weight_NT, episodes.reward_NT, episodes.discount_T)
    return mean_of_terms(terms_N, episodes.weight_NT[..., -1])


@estimator("cwpdis", source="Thomas (2015), Safe reinforcement learning", family="trajectory")
def cwpdis(episodes: LoggedEpisodes) -> Estimate:
    """sum_t gamma^t [sum_i w_{0:t} r_t / sum_i w_{0:t}].

    Every step is normalized over all N episodes, those that have ended included: they earn 0, which is data.
    Consistent, biased; for N = 1 it is G.
    """
    share_NT, reward_NT = episodes.share_NT, episodes.reward_NT
    mean_1T = np.einsum("...nt,...nt->...t", share_NT, reward_NT)[..., None, :]
    pull_N = np.einsum("...nt,...nt,t->...n", share_NT, reward_NT - mean_1T, episodes.discount_T)
    return linearized((mean_1T[..., 0, :] * episodes.discount_T).sum(-1), pull_N, share_NT[..., -1])


def ratio_estimate(value: Floats, part_N: Floats, share_N: Floats) -> Estimate:
    """The estimate sum(share x) from its parts share * x; stderr by the delta method."""
    return linearized(value, part_N - share_N * value[..., None], share_N)


def linearized(value: Floats, pull_N: Floats, share_N: Floats) -> Estimate:
    """An estimate whose error is, to first order, the sum of independent pulls with mean 0.

    stderr = sqrt(sum pull^2 N / (N - 1)), NaN for one unit, whose pull is 0 by construction.
    """
    n = pull_N.shape[-1]
    square = np.einsum("...n,...n->...", pull_N, pull_N)
    error = np.sqrt(square * n / (n - 1)) if n > 1 else np.full_like(square, np.nan)
    return Estimate(np.asarray(value), np.asarray(error), kish_ess(share_N))
