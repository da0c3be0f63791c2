"""MAGIC: the mixture of partial WDR estimates that minimizes an estimate of its mean squared error."""

from dataclasses import dataclass

import numpy as np

from envs.arrays import Floats
from testbed.errors import UserError
from testbed.estimators import Estimate, estimator, kish_ess
from testbed.estimators.doubly_robust_trajectory import wdr_parts
from testbed.estimators.trajectory_weights import LoggedEpisodes, before

_CELLS = 2**22
"""Resampled counts held in memory at once."""


@dataclass(frozen=True)
class Mixture:
    """Estimates to mix, [..., K]: j = -1 (DM), 0, …, T - 1 (WDR); covariance_KK and bias_K are estimated."""

    candidate_K: Floats
    covariance_KK: Floats
    bias_K: Floats
    weight_K: Floats


@estimator(
    "magic",
    source="Thomas & Brunskill (2016), arXiv:1604.00923, with the authors' later correction of Omega",
    family="trajectory", symmetric=False, needs=("q_NT", "v_NT"),
)  # fmt: skip
def magic(
    episodes: LoggedEpisodes,
    *,
    seed: int | np.random.Generator = 0,
    n_bootstrap_samples: int = 200,
    alpha: float = 0.1,
) -> Estimate:
    """x . g with x = argmin over the simplex of x^T (Omega + b b^T) x.

    g_j: WDR up to step j, then the model: gamma^{j+1} sum_i u_j Vhat_{j+1}; g_{-1} is DM, g_{T-1} is WDR.
    Omega = N times the sample covariance of the episodes' contributions; the paper's experiments lack the
    factor N, as the authors' reference code says. b_j: distance of g_j from WDR's 1 - alpha percentile
    bootstrap interval, stretched to contain WDR; the shares u_t are resampled with the episodes. b b^T is an
    outer product.

    Needs N >= 2. Consistent when WDR or DM is. stderr is sqrt(x^T Omega x), which ignores bias. All leading
    axes use the same resampled episodes. seed: an int, or a Generator, which is advanced.
    """
    found = mixture(episodes, seed=seed, n_bootstrap_samples=n_bootstrap_samples, alpha=alpha)
    value = (found.weight_K * found.candidate_K).sum(-1)
    error = np.einsum("...j,...jk,...k->...", found.weight_K, found.covariance_KK, found.weight_K)
    return Estimate(value, np.sqrt(np.maximum(error, 0.0)), kish_ess(episodes.share_NT[..., -1]))


def mixture(
    episodes: LoggedEpisodes,
    *,
    seed: int | np.random.Generator = 0,
    n_bootstrap_samples: int = 200,
    alpha: float = 0.1,
) -> Mixture:
    """Return candidates, Omega, b and the weights; UserError for N < 2 and for alpha outside (0, 1)."""
    n = episodes.reward_NT.shape[-2]
    if n < 2 or not 0.0 < alpha < 1.0 or n_bootstrap_samples < 1:
        raise UserError(
            f"MAGIC got {n} episodes, alpha = {alpha:g} and {n_bootstrap_samples} bootstrap samples; "
            "expected at least 2, strictly between 0 and 1, and at least 1."
        )
    share_NK = contributions(episodes)
    candidate_K = share_NK.sum(axis=-2)
    centered_NK = share_NK - share_NK.mean(axis=-2, keepdims=True)
    covariance_KK = n / (n - 1) * np.swapaxes(centered_NK, -1, -2) @ centered_NK
    drawn_B = bootstrap_wdr(episodes, np.random.default_rng(seed), n_bootstrap_samples)
    low, high = np.quantile(drawn_B, [alpha / 2, 1 - alpha / 2], axis=-1)
    low, high = np.minimum(low, candidate_K[..., -1]), np.maximum(high, candidate_K[..., -1])
    over_K, under_K = candidate_K - high[..., None], low[..., None] - candidate_K
    bias_K = np.maximum(np.maximum(over_K, under_K), 0.0)
    risk_KK = covariance_KK + bias_K[..., :, None] * bias_K[..., None, :]
    return Mixture(candidate_K, covariance_KK, bias_K, simplex_minimum(risk_KK))


def contributions(episodes: LoggedEpisodes) -> Floats:
    """Contributions of each episode to g_j, [..., N, T + 1]: j = -1, 0, …, T - 1; their sum over i is g_j."""
    part_NT, _ = wdr_parts(episodes)
    done_NT = np.cumsum(part_NT * episodes.discount_T, axis=-1)
    done_NK = np.concatenate([np.zeros_like(done_NT[..., :1]), done_NT], axis=-1)
    earlier_NT = before(episodes.share_NT, 1.0 / episodes.reward_NT.shape[-2])
    done_NK[..., :-1] += earlier_NT * episodes.demand("v_NT") * episodes.discount_T
    return done_NK


def bootstrap_wdr(episodes: LoggedEpisodes, rng: np.random.Generator, samples: int) -> Floats:
    """WDR of resampled episodes, with every share normalized anew, [..., B]."""
    n, share_NT = episodes.reward_NT.shape[-2], episodes.share_NT
    error_NT = share_NT * (episodes.reward_NT - episodes.demand("q_NT"))
    earlier_NT = before(share_NT, 1.0 / n)
    model_NT = earlier_NT * episodes.demand("v_NT")
    found = []
    for first in range(0, samples, max(1, _CELLS // n)):
        rows = min(max(1, _CELLS // n), samples - first)
        drawn_BN = rng.integers(n, size=(rows, n)) + n * np.arange(rows)[:, None]
        # With counts in place of indices a resampled sum over episodes is one matrix product.
        count_BN = np.bincount(drawn_BN.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)
        mass_BT, past_BT = count_BN @ share_NT, count_BN @ earlier_NT
        parts_BT = _over(count_BN @ error_NT, mass_BT) + _over(count_BN @ model_NT, past_BT)
        found.append(parts_BT @ episodes.discount_T)
    return np.concatenate(found, axis=-1)


def _over(top_BT: Floats, bottom_BT: Floats) -> Floats:
    """top / bottom; 0 at steps where all weights of a resample are 0."""
    return np.divide(top_BT, bottom_BT, out=np.zeros_like(top_BT), where=bottom_BT > 0)


def simplex_minimum(matrix_KK: Floats) -> Floats:
    """argmin of x^T M x over x >= 0, sum x = 1, for positive semidefinite M, [..., K]; exact (active set).

    Minimize |L y|^2 + (1 - sum y)^2 over y >= 0, M = L^T L; y is proportional to x, because along a ray the
    best scale is 1 / (1 + |L x|^2), with value |L x|^2 / (1 + |L x|^2). If x is not unique, returns one.
    """
    from scipy.optimize import nnls

    flat_RKK = matrix_KK.reshape(-1, *matrix_KK.shape[-2:])
    weight_RK = np.empty(flat_RKK.shape[:-1])
    for r, matrix in enumerate(flat_RKK):
        scale = float(np.trace(matrix)) / len(matrix)
        values, vectors = np.linalg.eigh(matrix / (scale if scale > 0 else 1.0))
        root_KK = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
        y_K = nnls(np.vstack([root_KK, np.ones(len(matrix))]), np.append(np.zeros(len(matrix)), 1.0))[0]
        weight_RK[r] = y_K / y_K.sum()
    return weight_RK.reshape(matrix_KK.shape[:-1])
