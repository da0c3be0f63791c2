"""Estimators that change the weight, or the product of weight and reward, and use no reward model.

With their defaults all of them are IPS. w = pi/mu of the logged action, V the value of pi.
"""

import numpy as np

from envs.arrays import Floats
from testbed.errors import UserError
from testbed.estimators import Estimate, estimator, kish_ess, mean_of_terms, standard_error
from testbed.estimators.logged_rounds import Logged, check_not_negative, check_unit, check_weights, weighted


@estimator("ips", source="Horvitz & Thompson (1952)", family="bandit", unbiased=True, linear=True)
def ips(data: Logged) -> Estimate:
    """(1/N) sum w r.

    Unbiased when mu > 0 wherever pi q != 0. n Var = E_mu[w^2 r^2] - V^2; shifting r changes it.
    """
    return weighted(data, data.weight_N)


@estimator("clipped_ips", source="Ionides (2008); Bottou et al. (2013)", family="bandit", linear=True)
def clipped_ips(data: Logged, *, lambda_: float = np.inf) -> Estimate:
    """(1/N) sum min(w, lambda) r.

    Bias -E_mu[(w - lambda)_+ q]: never positive for rewards >= 0.
    """
    check_not_negative("lambda_", lambda_)
    return weighted(data, np.minimum(data.weight_N, lambda_))


@estimator(
    "propensity_clipped_ips", source="Strehl et al. (2010), Learning from logged implicit exploration data",
    family="bandit", linear=True, needs=("pscore_N",),
)  # fmt: skip
def propensity_clipped_ips(data: Logged, *, tau: float = 0.0) -> Estimate:
    """(1/N) sum pi / max(mu, tau) r.

    Bias -E_pi[(1 - mu/tau)_+ q]. For pi = mu it is not the mean reward.
    """
    (pscore_N,) = data.need("propensity_clipped_ips", "pscore_N")
    check_unit("tau", tau)
    return weighted(data, data.weight_N * pscore_N / np.maximum(pscore_N, tau))


@estimator(
    "exponential_smoothing", source="Aouali et al. (2023), Exponential smoothing for off-policy learning",
    family="bandit", linear=True, needs=("pscore_N",),
)  # fmt: skip
def exponential_smoothing(data: Logged, *, alpha: float = 1.0) -> Estimate:
    """(1/N) sum pi / mu^alpha r.

    Bias -E_pi[(1 - mu^(1 - alpha)) q], also when pi = mu; for |r| <= 1 n Var <= E_pi[pi mu^(1 - 2 alpha)].
    """
    (pscore_N,) = data.need("exponential_smoothing", "pscore_N")
    check_unit("alpha", alpha)
    return weighted(data, data.weight_N * pscore_N ** (1.0 - alpha))


@estimator("power_of_ratio", source="Korba & Portier (2022)", family="bandit", linear=True)
def power_of_ratio(data: Logged, *, alpha: float = 1.0) -> Estimate:
    """(1/N) sum w^alpha r, with 0^0 = 0.

    Bias E_mu[(w^alpha - w) q]. Unlike exponential smoothing, for pi = mu it is the mean reward.
    """
    check_unit("alpha", alpha)
    if alpha == 0.0:
        return weighted(data, (data.weight_N > 0).astype(np.float64))
    return weighted(data, data.weight_N**alpha)


@estimator(
    "ix", source="Neu (2015), Explore no more; Gabbianelli, Neu & Papini (2024)", family="bandit",
    linear=True, needs=("pscore_N",),
)  # fmt: skip
def ix(data: Logged, *, gamma: float = 0.0) -> Estimate:
    """(1/N) sum pi / (mu + gamma) r, implicit exploration.

    Bias -gamma E_pi[q / (mu + gamma)]: pessimistic for rewards >= 0.
    """
    (pscore_N,) = data.need("ix", "pscore_N")
    check_not_negative("gamma", gamma)
    return weighted(data, data.weight_N * pscore_N / (pscore_N + gamma))


@estimator(
    "subgaussian_ips",
    source="Metelli, Russo & Restelli (2021), Subgaussian and differentiable importance sampling",
    family="bandit",
    linear=True,
)
def subgaussian_ips(data: Logged, *, lambda_: float = 0.0) -> Estimate:
    """(1/N) sum w / (1 - lambda + lambda w) r, the power mean of w and 1 with exponent -1.

    The weight is at most 1/lambda. Bias -lambda E_pi[q (w - 1) / (1 - lambda + lambda w)], of either sign.
    """
    return weighted(data, harmonic(data.weight_N, lambda_))


def harmonic(w_N: Floats, lambda_: float) -> Floats:
    """w / (1 - lambda + lambda w) [..., N], without overflow; 1 for lambda = 1, w = 0 included."""
    check_unit("lambda_", lambda_)
    if lambda_ == 0.0:
        return w_N
    if lambda_ == 1.0:
        return np.ones_like(w_N)
    # Divided by w, an infinite weight gives 1 / lambda and not inf / inf; w = 0 gives 1 / inf = 0.
    with np.errstate(divide="ignore"):
        return 1.0 / ((1.0 - lambda_) / w_N + lambda_)


@estimator(
    "log_smoothing",
    source="Sakhi et al. (2024), Logarithmic smoothing for pessimistic off-policy evaluation",
    family="bandit",
    linear=True,
)
def log_smoothing(data: Logged, *, lambda_: float = 0.0) -> Estimate:
    """(1/(lambda N)) sum ln(1 + lambda w r) for r >= 0, -(1/(lambda N)) sum ln(1 - lambda w r) for r <= 0.

    With S = E[(w r)^2 / (1 + lambda |w r|)] the bias is in [-lambda S, 0] for rewards and in [0, lambda S]
    for costs, so toward 0; n Var <= S. For rewards E prod (1 + lambda w r) = (1 + lambda V)^N, an e-value:
    see intervals.log_smoothing_bound.

    Raises UserError for rewards of both signs, for which the logarithm may not exist.
    """
    check_not_negative("lambda_", lambda_)
    if lambda_ == 0.0:
        return weighted(data, data.weight_N)
    check_weights(data.weight_N)
    low, high = float(data.reward_N.min()), float(data.reward_N.max())
    if low < 0.0 < high:
        raise UserError(
            f"Rewards range from {low:g} to {high:g}: log smoothing needs rewards >= 0 or costs <= 0. "
            "Shift them by a known bound, and the estimate back."
        )
    sign = 1.0 if low >= 0.0 else -1.0
    product_N = data.weight_N * np.abs(data.reward_N)
    return mean_of_terms(sign / lambda_ * np.log1p(lambda_ * product_N), data.weight_N)


@estimator("lse", source="Behnamnia et al. (2025), Log-sum-exponential estimator", family="bandit")
def lse(data: Logged, *, lambda_: float = 0.0) -> Estimate:
    """(1/lambda) ln((1/N) sum exp(lambda w r)), lambda < 0; lambda = 0 is IPS.

    Tends to (1/lambda) ln E exp(lambda w r) <= V, so it is not consistent for fixed lambda.
    """
    if not lambda_ <= 0.0:
        raise UserError(f"lambda_ is {lambda_:g}, expected at most 0: a positive one weighs outliers up.")
    if lambda_ == 0.0:
        return weighted(data, data.weight_N)
    check_weights(data.weight_N)
    scaled_N = lambda_ * data.weight_N * data.reward_N
    # Negative rewards make the exponents positive, and large ones would overflow.
    peak = scaled_N.max(-1, keepdims=True)
    tilted_N = np.exp(scaled_N - peak)
    mean = tilted_N.mean(-1)
    value = (np.log(mean) + peak[..., 0]) / lambda_
    return Estimate(value, standard_error(tilted_N) / (mean * -lambda_), kish_ess(data.weight_N))
