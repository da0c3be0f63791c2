"""Importance sampling over whole episodes and per decision, plain and self-normalized.

All need mu > 0 wherever pi > 0. ess is the Kish ESS of the sequence weights w_{0:T-1}.
"""

from functools import cached_property

import numpy as np

from envs.arrays import Floats
from testbed.estimators import Estimate, Later, estimator, kish_ess, mean_of_terms
from testbed.estimators.trajectory_weights import LoggedEpisodes


@estimator(
    "trajectory_is", source="Precup, Sutton & Singh (2000), ICML", family="trajectory", unbiased=True,
    linear=True,
)  # fmt: skip
def trajectory_is(episodes: LoggedEpisodes) -> Estimate:
    """mean over i of w_{0:T-1} G, G = sum_t gamma^t r_t.

    Variance E_mu[w^2 G^2] - J^2, exponential in T; shifting the rewards changes it.
    """
    weight_N = episodes.whole_weight_N
    return mean_of_terms(weight_N * episodes.return_N, weight_N)


@estimator("trajectory_wis", source="Precup, Sutton & Singh (2000), ICML", family="trajectory")
def trajectory_wis(episodes: LoggedEpisodes) -> Estimate:
    """sum w_{0:T-1} G / sum w_{0:T-1}, sums over i.

    Bias O(1/N): for N = 1 it is G, so its mean is the behavior policy's value. Stays within the range of G; a
    shift of G shifts it equally.
    """
    share_N = episodes.whole_share_N
    value = np.vecdot(share_N, episodes.return_N)
    return Linearized(value, lambda: share_N * (episodes.return_N - value[..., None]), share_N)


@estimator(
    "pdis", source="Precup, Sutton & Singh (2000), ICML", family="trajectory", unbiased=True, linear=True
)
def pdis(episodes: LoggedEpisodes) -> Estimate:
    """mean over i of sum_t gamma^t w_{0:t} r_t.

    Its variance can exceed that of trajectory_is: rewards that cancel within an episode no longer do when
    weighted separately. If only the last step is rewarded, both agree on every episode.
    """
    if episodes.sums is not None:
        return mean_of_terms(episodes.sums.terms_N, episodes.sums.weight_N)
    terms_N = np.einsum("...nt,...nt,t->...n", episodes.weight_NT, episodes.reward_NT, episodes.discount_T)
    return mean_of_terms(terms_N, episodes.weight_NT[..., -1])


@estimator("cwpdis", source="Thomas (2015), Safe reinforcement learning", family="trajectory")
def cwpdis(episodes: LoggedEpisodes) -> Estimate:
    """sum_t gamma^t [sum_i w_{0:t} r_t / sum_i w_{0:t}].

    Every step is normalized over all N episodes; those that have ended count with reward 0.
    Consistent, biased; for N = 1 it is G.
    """
    if episodes.sums is not None and episodes.sums.divisible:
        return Linearized(episodes.sums.value, episodes.sums.pull_N, episodes.sums.share_N)
    share_NT, reward_NT = episodes.share_NT, episodes.reward_NT
    mean_1T = np.einsum("...nt,...nt->...t", share_NT, reward_NT)[..., None, :]
    pull_N = np.einsum("...nt,...nt,t->...n", share_NT, reward_NT - mean_1T, episodes.discount_T)
    return Linearized((mean_1T[..., 0, :] * episodes.discount_T).sum(-1), pull_N, share_NT[..., -1])


class Linearized(Estimate):
    """An Estimate with an error that is, to first order, a sum of independent pulls with mean 0.

    stderr = sqrt(sum pull^2 N / (N - 1)), NaN for one unit, because its pull is always 0. Standard error and
    ESS are computed on first access; pulls can be a function, called then.
    """

    def __init__(self, value: Floats, pull_N: Later, share_N: Floats) -> None:
        self.__dict__.update(value=np.asarray(value), _pull_N=pull_N, _share_N=share_N)

    @cached_property
    def stderr(self) -> Floats:
        given_N = self.__dict__["_pull_N"]
        pull_N = given_N() if callable(given_N) else given_N
        n = pull_N.shape[-1]
        square = np.vecdot(pull_N, pull_N)
        return np.asarray(np.sqrt(square * n / (n - 1)) if n > 1 else np.full_like(square, np.nan))

    @cached_property
    def ess(self) -> Floats:
        return kish_ess(self.__dict__["_share_N"])
