"""Unbiased score of the best of k answers, from n >= k samples per prompt. No torch."""

from math import comb

import numpy as np
from numpy.typing import ArrayLike

from envs.arrays import Floats
from testbed.errors import UserError

SOLVED = 1.0 - 1e-6
"""Rewards of at least this count as success: tasks score from 0 to 1, and 1 is a right answer."""


def pass_at_k(success_XN: ArrayLike, k: int) -> Floats:
    """1 - C(n - c, k) / C(n, k) with c successes among n samples: Chen et al. (2021), eq. 1; [...].

    Unbiased for P(at least one of k independent samples succeeds) = 1 - (1 - p)^k, for all n >= k.

    Args:
        success_XN: bool [..., n], independent samples of one policy for one prompt along the last axis.
        k: number of samples to pick the answer from.

    Raises UserError unless 1 <= k <= n.
    """
    success_XN = np.asarray(success_XN, dtype=bool)
    n = _samples(success_XN.shape, k)
    found_by_count = np.array([1.0 - comb(n - c, k) / comb(n, k) for c in range(n + 1)])
    passed_X: Floats = found_by_count[success_XN.sum(-1)]
    return passed_X


def max_at_k(reward_XN: ArrayLike, k: int) -> Floats:
    """sum_i C(i - 1, k - 1) / C(n, k) r_(i), with r_(1) <= … <= r_(n); [...].

    The mean of the largest reward over all subsets of k of the n samples, so unbiased for the expected best
    of k independent ones; for rewards 0 and 1 it is pass@k. By the argument of Chen et al. (2021), eq. 1.

    Args:
        reward_XN: rewards [..., n] of independent samples of one policy for one prompt.
        k: number of samples to take the best of.

    Raises UserError unless 1 <= k <= n.
    """
    reward_XN = np.asarray(reward_XN, dtype=np.float64)
    n = _samples(reward_XN.shape, k)
    weight_N = np.array([comb(i, k - 1) / comb(n, k) for i in range(n)])
    best_X: Floats = np.sort(reward_XN, axis=-1) @ weight_N
    return best_X


def _samples(shape: tuple[int, ...], k: int) -> int:
    n = shape[-1] if shape else 0
    if not 1 <= k <= n:
        raise UserError(f"k is {k} for {n} samples per prompt; expected 1 <= k <= {n}: draw more samples.")
    return n
