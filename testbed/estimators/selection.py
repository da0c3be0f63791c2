"""Scores for choosing among W candidate policies by estimated value: estimates and truths [..., W] to [...].

Policies are ranked by estimate, best first; ties go to the smaller index.
"""

import numpy as np
from numpy.typing import ArrayLike

from envs.arrays import Floats
from testbed.errors import UserError


def mean_squared_error(estimated_W: ArrayLike, true_W: ArrayLike) -> Floats:
    """(1/W) sum (estimate - value)^2."""
    estimated, true = _pair(estimated_W, true_W)
    return np.asarray(((estimated - true) ** 2).mean(-1))


def rank_correlation(estimated_W: ArrayLike, true_W: ArrayLike) -> Floats:
    """Spearman's rho: Pearson correlation of the ranks, ties at their mean rank; NaN if all are tied."""
    from scipy import stats

    estimated, true = _pair(estimated_W, true_W)
    a_W, b_W = (stats.rankdata(x, axis=-1) - (x.shape[-1] + 1) / 2 for x in (estimated, true))
    norm = np.sqrt((a_W**2).sum(-1) * (b_W**2).sum(-1))
    dot = (a_W * b_W).sum(-1)
    return np.divide(dot, norm, out=np.full_like(norm, np.nan), where=norm > 0)


def regret_at_k(estimated_W: ArrayLike, true_W: ArrayLike, *, k: int = 1) -> Floats:
    """max true value - best true value among the k policies ranked first."""
    chosen_K = top_values(estimated_W, true_W, k=k)
    return np.asarray(np.asarray(true_W, dtype=np.float64).max(-1) - chosen_K.max(-1))


def top_values(estimated_W: ArrayLike, true_W: ArrayLike, *, k: int) -> Floats:
    """True values [..., k] of the k policies ranked first: their max, min, mean, std are best@k and so on."""
    estimated, true = _pair(estimated_W, true_W)
    if not 1 <= k <= true.shape[-1]:
        raise UserError(f"k is {k}, expected 1 to {true.shape[-1]}, the number of policies.")
    order_K = np.argsort(-estimated, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(true, order_K, axis=-1)


def _pair(estimated_W: ArrayLike, true_W: ArrayLike) -> tuple[Floats, Floats]:
    estimated, true = np.asarray(estimated_W, dtype=np.float64), np.asarray(true_W, dtype=np.float64)
    if estimated.ndim < 1 or true.ndim < 1 or estimated.shape[-1] != true.shape[-1]:
        raise UserError(f"Estimates have shape {estimated.shape}, true values {true.shape}; both [..., W].")
    if np.isnan(estimated).any() or np.isnan(true).any():
        raise UserError(
            "An estimate or a value is NaN and has no rank; drop the policy or correct the estimate."
        )
    shape = np.broadcast_shapes(estimated.shape, true.shape)
    return np.broadcast_to(estimated, shape), np.broadcast_to(true, shape)
