"""Estimators divided by the sum of their weights: bounded by the rewards, with bias O(1/N)."""

from envs.arrays import Floats
from testbed.estimators import Estimate, estimator, mean_of_terms
from testbed.estimators.logged_rounds import Logged


@estimator(
    "snips",
    source="Swaminathan & Joachims (2015), The self-normalized estimator for counterfactual learning",
    family="bandit",
)
def snips(data: Logged) -> Estimate:
    """sum w r / sum w.

    Stays in [min r, max r]; shifting r by c shifts it by c. For N = 1 it is the reward, for every policy. The
    delta method's bias -(1/N) E_mu[w^2 (r - V)] can have the wrong sign for small N.
    """
    value = data.normalized_mean(data.reward_N)

    def terms() -> Floats:
        share_N = data.share_N
        return value[..., None] + share_N * (data.reward_N - value[..., None])

    return mean_of_terms(terms, lambda: data.share_N, value)


@estimator(
    "sn_dr", source="Thomas & Brunskill (2016), Data-efficient off-policy policy evaluation, for one step",
    family="bandit", needs=("q_N", "q_pi_N"),
)  # fmt: skip
def sn_dr(data: Logged) -> Estimate:
    """(1/N) sum q(x, pi) + sum w (r - q) / sum w."""
    _, q_pi_N = data.need("sn_dr", "q_N", "q_pi_N")
    correction = data.normalized_mean(data.residual_N)[..., None]

    def terms() -> Floats:
        terms_N = q_pi_N + correction
        terms_N += data.share_N * (data.residual_N - correction)
        return terms_N

    total = data.direct + correction[..., 0] if data.large else None
    return mean_of_terms(terms, lambda: data.share_N, total)
