"""Offline learning with one continuous action: a bandit, extrapolating critics, data constraints, flows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from envs.arrays import Floats
from envs.continuous import normals


@dataclass(frozen=True, kw_only=True, eq=False)
class BumpBandit:
    """Context x uniform on [0, 1], one action a, reward sum_k height_k exp(-(a - center_k - tilt_k x)^2 / (2
    width_k^2)).

    reward_std: standard deviation of normal noise. Every expectation under a Gaussian policy has a closed
    form. Designed here.
    """

    center_K: Floats
    tilt_K: Floats
    height_K: Floats
    width_K: Floats
    reward_std: float = 0.1

    def mean_reward(self, context_x: ArrayLike, action_x: ArrayLike, std_x: ArrayLike = 0.0) -> Floats:
        """E[r | x, a ~ N(action, std^2)] = sum_k height w / sqrt(w^2 + std^2) exp(-(a - c)^2 / (2 (w^2 +
        std^2))), [x].
        """
        context_x1, action_x1 = np.asarray(context_x)[..., None], np.asarray(action_x)[..., None]
        total_xK = self.width_K**2 + np.asarray(std_x, np.float64)[..., None] ** 2
        away_xK = action_x1 - self.center_K - self.tilt_K * context_x1
        peak_xK = self.height_K * self.width_K / np.sqrt(total_xK) * np.exp(-(away_xK**2) / (2 * total_xK))
        return np.asarray(peak_xK.sum(-1))

    def log(
        self,
        key_R: ArrayLike,
        n: int,
        *,
        mean_W: ArrayLike,
        std_W: ArrayLike,
        share_W: ArrayLike,
        step: int = 0,
    ) -> tuple[Floats, Floats, Floats]:
        """Log (context, action, reward), [R, n] each, from N(mean_v, std_v^2) with probability share_v."""
        from envs import kernels  # loads numba

        uniform_RND = kernels.uniforms(np.asarray(key_R, np.uint64), 2 * step, n, 2)
        normal_RND = normals(key_R, 2 * step + 1, n, 2)
        edges_W = np.cumsum(np.asarray(share_W, np.float64))
        if not np.isclose(edges_W[-1], 1.0):
            raise ValueError(f"share_W sums to {edges_W[-1]:g}, expected 1: a share for each part.")
        part_RN = np.minimum(np.searchsorted(edges_W, uniform_RND[..., 1], side="right"), len(edges_W) - 1)
        action_RN = np.asarray(mean_W)[part_RN] + np.asarray(std_W)[part_RN] * normal_RND[..., 0]
        reward_RN = self.mean_reward(uniform_RND[..., 0], action_RN) + self.reward_std * normal_RND[..., 1]
        return uniform_RND[..., 0], action_RN, reward_RN


def polynomial_critic(
    context_RN: Floats,
    action_RN: Floats,
    reward_RN: Floats,
    grid_S: Floats,
    grid_A: Floats,
    degree: int,
    ridge: float,
) -> Floats:
    """Ridge regression of the reward on monomials x^i a^j, i + j <= degree, on a grid, [R, S, A].

    Far from the data it extrapolates as its powers do, and an unconstrained policy seeks these errors.
    Designed here: a critic with the errors attributed to networks.
    """
    powers = [(i, j) for i in range(degree + 1) for j in range(degree + 1 - i)]
    phi_RNF = np.stack([context_RN**i * action_RN**j for i, j in powers], axis=-1)
    gram_RFF = np.swapaxes(phi_RNF, -1, -2) @ phi_RNF + ridge * np.eye(len(powers))
    weight_RF = np.linalg.solve(gram_RFF, np.swapaxes(phi_RNF, -1, -2) @ reward_RN[..., None])[..., 0]
    grid_SAF = np.stack([grid_S[:, None] ** i * grid_A**j for i, j in powers], axis=-1)
    return np.asarray(np.einsum("xgf,rf->rxg", grid_SAF, weight_RF))


def nearest_distance(
    context_RN: Floats, action_RN: Floats, grid_S: Floats, grid_A: Floats, weight: float
) -> tuple[Floats, Floats]:
    """Squared distance of (weight x, a) to the nearest logged (weight x_i, a_i), and that action, [R, S, A]
    each.

    A larger weight favors equal contexts: inf-like values give the clone of the nearest context's action, 0 a
    support constraint on actions only. Source: PRDC (Ran et al. 2023), equation 4.
    """
    space_RSN = weight**2 * (grid_S[:, None] - context_RN[:, None]) ** 2
    square_RSAN = space_RSN[:, :, None] + (grid_A[:, None] - action_RN[:, None, None]) ** 2
    best_RSA = square_RSAN.argmin(-1)
    near_RSA = np.take_along_axis(
        np.broadcast_to(action_RN[:, None, None], square_RSAN.shape), best_RSA[..., None], -1
    )[..., 0]
    return square_RSAN.min(-1), near_RSA


def local_mean(context_RN: Floats, action_RN: Floats, grid_S: Floats, bandwidth: float) -> Floats:
    """E[a | x] by kernel regression, [R, S]: the target of a cloning penalty (a - E[a|x])^2 (TD3+BC).

    Source: Nadaraya (1964), Watson (1964); the penalty is that of Fujimoto & Gu (2021).
    """
    kernel_RSN = np.exp(-((grid_S[:, None] - context_RN[:, None]) ** 2) / (2 * bandwidth**2))
    return np.asarray((kernel_RSN * action_RN[:, None]).sum(-1) / np.maximum(kernel_RSN.sum(-1), 1e-300))


def penalized_actions(q_RSA: Floats, penalty_RSA: Floats, weight: float, grid_A: Floats) -> Floats:
    """argmax_a Q - weight penalty on the grid, [R, S]: the limit of gradient steps with the constraint.

    Designed here, in place of gradient steps.
    """
    return np.asarray(grid_A[(q_RSA - weight * penalty_RSA).argmax(-1)])


def density_score(
    context_RN: Floats, action_RN: Floats, query_RS: Floats, grid_S: Floats, bandwidth: tuple[float, float]
) -> tuple[Floats, Floats]:
    """log phat(x, a) and d/da log phat, [R, S] each, of a Gaussian kernel density with bandwidths (context,
    action).

    d/da log phat = sum_i k_i (a_i - a) / h^2 / sum_i k_i, with kernels relative to the largest, so nothing
    underflows. Source: Hyvarinen (2005) for the score; Silverman (1986) for the estimate.
    """
    h_x, h_a = bandwidth
    away_RSN = action_RN[:, None] - query_RS[..., None]
    log_RSN = -(((grid_S[:, None] - context_RN[:, None]) / h_x) ** 2) / 2 - (away_RSN / h_a) ** 2 / 2
    largest_RS1 = log_RSN.max(-1, keepdims=True)
    kernel_RSN = np.exp(log_RSN - largest_RS1)
    total_RS = kernel_RSN.sum(-1)
    log_density_RS = (
        np.log(total_RS) + largest_RS1[..., 0] - np.log(2 * np.pi * h_x * h_a * action_RN.shape[-1])
    )
    return log_density_RS, (kernel_RSN * away_RSN).sum(-1) / h_a**2 / total_RS


def score_corrected(
    context_RN: Floats, action_RN: Floats, start_RS: Floats, grid_S: Floats, bandwidth: tuple[float, float],
    *, steps: int, rate: float,
) -> Floats:  # fmt: skip
    """a <- a + rate d/da log phat(x, a), `steps` times, [R, S]: move a trained policy's actions toward the
    data.

    Source: CDSA (Liu et al. 2024); this is its conservative denoising score for a kernel density. With rate
    <= h_a^2 it is a mean-shift step or less, and never overshoots.
    """
    for _ in range(steps):
        start_RS = start_RS + rate * density_score(context_RN, action_RN, start_RS, grid_S, bandwidth)[1]
    return start_RS
