"""Tabular DICE: the ratio of pi's discounted occupancy to the data, from the empirical linear system."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.arrays import Bools, Floats
from testbed.errors import UserError
from testbed.estimators import Estimate, estimator, kish_ess
from testbed.estimators.episode_counts import tally, unflatten
from testbed.estimators.fqe import Transitions, first_dist, next_pair_counts, transitions
from testbed.estimators.trajectory_weights import LoggedEpisodes

RANK_TOLERANCE = 1e-10
"""Singular values below this share of the largest count as 0."""


@dataclass(frozen=True)
class DiceSolution:
    """Linear system of M logged transitions: A^T zeta = b, A = D(I - gamma P_pi), b = (1 - gamma) p_0 x pi.

    matrix_XX, start_X, reward_X: A, b and D r, X = S A. ratio_SA: zeta; if A is singular, the least-norm one.
    singular [...]: True when a pair has no data or A has no inverse; zeta is then not unique. residual [...]:
    largest |A^T zeta - b|. Larger than rounding: pi reaches pairs without data; their rewards are missed.
    """

    matrix_XX: Floats
    start_X: Floats
    reward_X: Floats
    ratio_SA: Floats
    singular: Bools
    residual: Floats
    step: Transitions

    @property
    def q_value(self) -> Floats:
        """Q with A Q = D r, least norm when singular, [..., S, A]: LSTD-Q with one feature per pair."""
        return unflatten(_apply(_inverse(self.matrix_XX), self.reward_X), self.ratio_SA.shape[-2:])


@estimator(
    "dice", source="Nachum et al. (2019), DualDICE, arXiv:1906.04733, with a table", family="trajectory",
    needs=("state_NT", "action_NT", "pi_SA"),
)  # fmt: skip
def dice(episodes: LoggedEpisodes) -> Estimate:
    """E_D[zeta r] / (1 - gamma) with A^T zeta = b: the discounted value with an infinite horizon.

    Valid for gamma < 1, transitions of one stationary world, and first states drawn from its first
    distribution. Any policy, or mixture, may have logged them. For all data it equals b . Q / (1 - gamma)
    with A Q = D r. If the data leave A singular, the least-norm zeta is used; `dice_solution` reports that.
    stderr is NaN; ess counts transitions.
    """
    found = dice_solution(episodes)
    weight_M = np.take_along_axis(_pairs(found.ratio_SA), found.step.pair_M, -1)
    weight_M = np.where(found.step.live_M, weight_M, 0.0)
    count = found.step.live_M.sum(-1)
    value = (weight_M * found.step.reward_M).sum(-1) / count / (1.0 - episodes.gamma)
    return Estimate(np.asarray(value), np.full_like(value, np.nan), kish_ess(weight_M))


def dice_solution(episodes: LoggedEpisodes) -> DiceSolution:
    """Build and solve the empirical system; UserError for gamma = 1 and for data without a usable step."""
    if episodes.gamma >= 1.0:
        raise UserError("gamma is 1, expected less: a discounted occupancy needs a discount.")
    pi_SA, step = episodes.demand("pi_SA"), transitions(episodes)
    count = step.live_M.sum(-1)[..., None]
    if (count == 0).any():
        raise UserError("No logged step has a known successor; give next_state_NT, or longer episodes.")
    visits_X = tally(step.pair_M, pi_SA.size, step.live_M) / count
    ahead_XX = next_pair_counts(step, pi_SA) / count[..., None]
    matrix_XX = visits_X[..., None] * np.eye(pi_SA.size) - episodes.gamma * ahead_XX
    start_X = (1.0 - episodes.gamma) * _pairs(first_dist(episodes)[..., None] * pi_SA)
    reward_X = tally(step.pair_M, pi_SA.size, step.live_M * step.reward_M) / count
    transposed_XX = np.swapaxes(matrix_XX, -1, -2)
    ratio_X = _apply(_inverse(transposed_XX), start_X)
    # The tolerance of the pseudoinverse, so `singular` tells when that chose among solutions.
    rank = np.linalg.matrix_rank(matrix_XX, tol=RANK_TOLERANCE * np.linalg.norm(matrix_XX, 2, (-2, -1)))
    residual = np.abs(_apply(transposed_XX, ratio_X) - start_X).max(-1)
    ratio_SA = unflatten(ratio_X, pi_SA.shape)
    return DiceSolution(matrix_XX, start_X, reward_X, ratio_SA, np.asarray(rank < pi_SA.size), residual, step)


def _inverse(matrix_XX: Floats) -> Floats:
    return np.asarray(np.linalg.pinv(matrix_XX, rcond=RANK_TOLERANCE), dtype=np.float64)


def _apply(matrix_XX: Floats, vector_X: Floats) -> Floats:
    product: Floats = (matrix_XX @ vector_X[..., None])[..., 0]
    return product


def _pairs(table_SA: NDArray[Any]) -> NDArray[Any]:
    """Merge the last two axes."""
    return table_SA.reshape(*table_SA.shape[:-2], -1)
