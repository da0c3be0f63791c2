"""Estimators for episodes with a model as control variate: DM, DR, WDR, and the Qhat of least DR variance.

All take q_NT = Qhat_t(s_t, a_t) and v_NT = sum_a pi(a|s_t) Qhat_t(s_t, a). A Qhat fitted on the same episodes
biases DR: use other data, or testbed.estimators.fqe.cross_fitted.
"""

import numpy as np

from envs.arrays import Floats
from testbed.estimators import Estimate, estimator, mean_of_terms, standard_error
from testbed.estimators.episode_counts import tally, unflatten
from testbed.estimators.fqe import cross_fitted
from testbed.estimators.trajectory import Linearized
from testbed.estimators.trajectory_weights import LoggedEpisodes, before


@estimator(
    "trajectory_dm", source="regression estimator in Jiang & Li (2016)", family="trajectory", needs=("v_NT",)
)
def trajectory_dm(episodes: LoggedEpisodes) -> Estimate:
    """mean over i of Vhat_0(s_0). It has the model's bias, which stderr does not show. ess is NaN."""
    first_N = episodes.demand("v_NT")[..., 0]
    value = np.asarray(first_N.mean(-1))
    return Estimate(value, standard_error(first_N), np.full_like(value, np.nan), first_N)


@estimator(
    "trajectory_dr",
    source="Jiang & Li (2016), Doubly robust off-policy value evaluation, the recursion unrolled",
    family="trajectory", unbiased=True, linear=True, needs=("q_NT", "v_NT"),
)  # fmt: skip
def trajectory_dr(episodes: LoggedEpisodes) -> Estimate:
    """mean over i of sum_t gamma^t [w_{0:t} (r_t - Qhat_t) + w_{0:t-1} Vhat_t].

    Unbiased for every Qhat fixed in advance; Qhat = 0 is pdis. With Qhat = Q in a deterministic world its
    variance is 0. General variance: testbed.exact.mdp.doubly_robust_variance.
    """
    if episodes.model_sums is not None:
        return mean_of_terms(episodes.model_sums.terms_N, episodes.model_sums.weight_N)
    weight_NT = episodes.weight_NT
    step_NT = weight_NT * (episodes.reward_NT - episodes.demand("q_NT"))
    step_NT += before(weight_NT, 1.0) * episodes.demand("v_NT")
    return mean_of_terms(step_NT @ episodes.discount_T, weight_NT[..., -1])


@estimator(
    "wdr", source="Thomas & Brunskill (2016), arXiv:1604.00923, equation 1", family="trajectory",
    needs=("q_NT", "v_NT"),
)  # fmt: skip
def wdr(episodes: LoggedEpisodes) -> Estimate:
    """sum over i, t of gamma^t [u_t (r_t - Qhat_t) + u_{t-1} Vhat_t], u_t = w_{0:t} / sum_i w_{0:t}.

    u_{-1} = 1/N. It sums over i because the shares u_t already add up to 1. Consistent, biased.
    """
    if episodes.model_sums is not None and episodes.model_sums.divisible:
        sums = episodes.model_sums
        return Linearized(sums.value, sums.pull_N, sums.share_N)
    part_NT, mean_1T = wdr_parts(episodes)
    value = mean_1T[..., 0, :] @ episodes.discount_T
    share_NT = episodes.share_NT
    error_NT = episodes.reward_NT - episodes.demand("q_NT")
    error_mean_1T = (share_NT * error_NT).sum(-2, keepdims=True)
    earlier_NT = before(share_NT, 1.0 / share_NT.shape[-2])
    pull_NT = part_NT - share_NT * error_mean_1T - earlier_NT * (mean_1T - error_mean_1T)
    return Linearized(value, pull_NT @ episodes.discount_T, share_NT[..., -1])


def wdr_parts(episodes: LoggedEpisodes) -> tuple[Floats, Floats]:
    """u_t (r_t - Qhat_t) + u_{t-1} Vhat_t without discount, [..., N, T], and its sum over i, [..., 1, T]."""
    share_NT = episodes.share_NT
    part_NT = share_NT * (episodes.reward_NT - episodes.demand("q_NT"))
    part_NT += before(share_NT, 1.0 / share_NT.shape[-2]) * episodes.demand("v_NT")
    return part_NT, part_NT.sum(axis=-2, keepdims=True)


def more_robust_q(episodes: LoggedEpisodes, feature_TSAF: Floats | None = None) -> Floats:
    """argmin over Qhat of sum_t gamma^{2t} E[w_{0:t-1}^2 Var_{a~mu}(rho (Rbar_t - Qhat_t))], [..., T, S, A].

    Rbar_t = sum_{k>=t} gamma^{k-t} rho_{t+1} … rho_k r_k. On the exact distribution the result has the least
    DR variance in its class. feature_TSAF: Qhat = feature @ beta with least-norm beta. None: one free Qhat
    per (t, s, a); it is unique up to c(t, s) mu/pi, and c = 0 is returned; 0 where pi = 0 or data are
    missing. Needs state_NT, action_NT, pi_SA and mu_SA. Source: Farajtabar, Chow & Ghavamzadeh (2018).
    """
    pi_SA, mu_SA = episodes.demand("pi_SA"), episodes.demand("mu_SA")
    tail_NT = _weighted_tail(episodes)
    square_NT = before(episodes.weight_NT, 1.0) ** 2
    pulled_NT = square_NT * np.exp(episodes.log_rho_NT) * tail_NT
    pair_NT = episodes.demand("state_NT") * pi_SA.shape[1] + episodes.demand("action_NT")
    mass_TS, pulled_TSA = [], []
    for t in range(episodes.steps):
        live_N = episodes.live_NT[..., t]
        mass_TS.append(tally(episodes.demand("state_NT")[..., t], len(pi_SA), live_N * square_NT[..., t]))
        found_X = tally(pair_NT[..., t], pi_SA.size, live_N * pulled_NT[..., t])
        pulled_TSA.append(unflatten(found_X, pi_SA.shape))
    mass_xTS, pulled_xTSA = np.stack(mass_TS, -2), np.stack(pulled_TSA, -3)
    if feature_TSAF is not None:
        return _least_variance(mass_xTS, pulled_xTSA, pi_SA, mu_SA, episodes.discount_T, feature_TSAF)
    divisor_xTSA = mass_xTS[..., None] * pi_SA
    return np.divide(pulled_xTSA, divisor_xTSA, out=np.zeros_like(pulled_xTSA), where=divisor_xTSA > 0)


def _weighted_tail(episodes: LoggedEpisodes) -> Floats:
    """Rbar_t = r_t + gamma rho_{t+1} Rbar_{t+1}, [..., N, T]."""
    rho_NT, tail_NT = np.exp(episodes.log_rho_NT), episodes.reward_NT.copy()
    for t in reversed(range(episodes.steps - 1)):
        tail_NT[..., t] += episodes.gamma * rho_NT[..., t + 1] * tail_NT[..., t + 1]
    return tail_NT


def _least_variance(
    mass_TS: Floats,
    pulled_TSA: Floats,
    pi_SA: Floats,
    mu_SA: Floats,
    discount_T: Floats,
    feature_TSAF: Floats,
) -> Floats:
    """Solve for Qhat = feature @ beta of least u^T (diag(1/mu) - 1 1^T) u, u = pi (Q - Qhat)."""
    inverse_SA = np.divide(1.0, mu_SA, out=np.zeros_like(mu_SA), where=mu_SA > 0)
    form_SAA = np.eye(pi_SA.shape[1]) * inverse_SA[:, None, :] - 1.0
    lean_TSAF = feature_TSAF * pi_SA[..., None]
    mass_TS = mass_TS * discount_T[:, None] ** 2
    pulled_TSA = pulled_TSA * discount_T[:, None, None] ** 2
    axes = "...ts,tsaf,sab,tsbg->...fg"
    matrix_FF = np.einsum(axes, mass_TS, lean_TSAF, form_SAA, lean_TSAF, optimize=True)
    right_F = np.einsum("tsaf,sab,...tsb->...f", lean_TSAF, form_SAA, pulled_TSA, optimize=True)
    beta_F = (np.linalg.pinv(matrix_FF, rcond=1e-12, hermitian=True) @ right_F[..., None])[..., 0]
    return np.einsum("tsaf,...f->...tsa", feature_TSAF, beta_F)


@estimator(
    "trajectory_mrdr",
    source="Farajtabar, Chow & Ghavamzadeh (2018), More robust doubly robust off-policy evaluation",
    family="trajectory", unbiased=True, symmetric=False, needs=("state_NT", "action_NT", "pi_SA", "mu_SA"),
)  # fmt: skip
def trajectory_mrdr(episodes: LoggedEpisodes, *, folds: int = 2) -> Estimate:
    """trajectory_dr with a tabular Qhat from more_robust_q, fitted for each fold on the others.

    Cross-fitting keeps it unbiased. Terms of different folds share data, so stderr is approximate.
    """
    return trajectory_dr(cross_fitted(episodes, more_robust_q, folds))
