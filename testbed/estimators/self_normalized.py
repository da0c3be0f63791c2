"""Estimators divided by the sum of their weights: bounded by the rewards, biased by O(1/N)."""

from __future__ import annotations

import numpy as np

from testbed.estimators import Estimate, estimator, kish_ess, standard_error
from testbed.estimators.bandit import Logged


@estimator(
    "snips",
    source="Swaminathan & Joachims (2015), The self-normalized estimator for counterfactual learning",
    family="bandit",
)
def snips(data: Logged) -> Estimate:
    """sum w r / sum w.

    In [min r, max r]; adds c when r does; for N = 1 it is the reward, whatever the policy. The delta method's
    bias -(1/N) E_mu[w^2 (r - V)] can have the wrong sign for small N.
    """
    share_N = data.share_N
    value = np.asarray((share_N * data.reward_N).mean(-1))
    terms_N = value[..., None] + share_N * (data.reward_N - value[..., None])
    return Estimate(value, standard_error(terms_N), kish_ess(share_N), terms_N)


@estimator(
    "sn_dr",
    source="Thomas & Brunskill (2016), Data-efficient off-policy policy evaluation, for one step",
    family="bandit",
    needs=("q_N", "q_pi_N"),
)
def sn_dr(data: Logged) -> Estimate:
    """(1/N) sum q(x, pi) + sum w (r - q) / sum w."""
    q_N, q_pi_N = data.need("sn_dr", "q_N", "q_pi_N")
    share_N = data.share_N
    residual_N = data.reward_N - q_N
    correction = np.asarray((share_N * residual_N).mean(-1))[..., None]
    terms_N = q_pi_N + correction + share_N * (residual_N - correction)
    return Estimate(np.asarray(terms_N.mean(-1)), standard_error(terms_N), kish_ess(share_N), terms_N)
