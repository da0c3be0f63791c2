"""Marginalized importance sampling: ratios of state distributions at step t replace products of ratios."""

import dataclasses

import numpy as np

from envs.arrays import Floats
from testbed.estimators import Estimate, estimator, mean_of_terms
from testbed.estimators.episode_counts import ratio, tally
from testbed.estimators.trajectory_weights import LoggedEpisodes


@estimator(
    "marginalized_is", source="Xie, Ma & Wang (2019), marginalized importance sampling",
    family="trajectory", unbiased=True, linear=True, needs=("state_marginal_importance_weight_NT",),
)  # fmt: skip
def marginalized_is(episodes: LoggedEpisodes) -> Estimate:
    """mean over i of sum_t gamma^t d_pi,t(s_t)/d_mu,t(s_t) rho_t r_t.

    Unbiased with the exact ratios of the undiscounted distributions at step t (testbed.exact.ratios_dice.
    state_marginal_ratios); a stationary or discounted ratio biases it. Each term is the conditional mean of
    its pdis term, so it varies no more; their sum may. ess is that of the weights of the last steps.
    """
    weight_NT = episodes.demand("state_marginal_importance_weight_NT") * np.exp(episodes.log_rho_NT)
    last_N1 = episodes.live_NT.sum(-1, keepdims=True) - 1
    last_N = np.take_along_axis(weight_NT, last_N1, -1)[..., 0]
    return mean_of_terms((weight_NT * episodes.reward_NT) @ episodes.discount_T, last_N)


@estimator(
    "marginalized_is_counts", source="Xie, Ma & Wang (2019), with counted ratios", family="trajectory",
    needs=("state_NT",),
)  # fmt: skip
def marginalized_is_counts(episodes: LoggedEpisodes) -> Estimate:
    """marginalized_is with the ratios estimated from the same episodes: consistent, biased.

    stderr ignores the error of the estimated ratios.
    """
    weight_NT = counted_state_ratios(episodes)
    found = marginalized_is(dataclasses.replace(episodes, state_marginal_importance_weight_NT=weight_NT))
    return Estimate(found.value, found.stderr, found.ess)


def counted_state_ratios(episodes: LoggedEpisodes) -> Floats:
    """Estimate d_pi,t / d_mu,t at the logged states, [..., N, T].

    ratio_0 = 1; ratio_{t+1}(s') = mean over the visits of s' at t + 1 of ratio_t(s_t) rho_t: d_pi,t P_pi from
    counts, over the share of visits. On-policy all are exactly 1.
    """
    state_NT, rho_NT, live_NT = episodes.demand("state_NT"), np.exp(episodes.log_rho_NT), episodes.live_NT
    size = int(state_NT.max()) + 1
    ratio_NT = np.ones_like(episodes.reward_NT)
    for t in range(1, episodes.steps):
        arriving_N = live_NT[..., t] * ratio_NT[..., t - 1] * rho_NT[..., t - 1]
        sum_S = tally(state_NT[..., t], size, arriving_N)
        mean_S = ratio(sum_S, tally(state_NT[..., t], size, live_NT[..., t]))
        ratio_NT[..., t] = live_NT[..., t] * np.take_along_axis(mean_S, state_NT[..., t], -1)
    return ratio_NT
