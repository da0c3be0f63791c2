"""Continuous actions with known truth: linear-quadratic control, point mass, bandits with bumps.

The first axis is R cells; all randomness is a function of the cells' keys.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from envs.arrays import Floats


def normals(key_R: ArrayLike, step: int, rows: int, columns: int) -> Floats:
    """[R, rows, columns] standard normals of the stream (key, step), by Box-Muller."""
    from envs import kernels

    pairs = -(-columns // 2)
    uniform_RND = kernels.uniforms(np.asarray(key_R, np.uint64), step, rows, 2 * pairs)
    # Uniforms include 0 and exclude 1, so that 1 - u has a logarithm.
    radius_RNP = np.sqrt(-2.0 * np.log(1.0 - uniform_RND[..., :pairs]))
    angle_RNP = 2.0 * np.pi * uniform_RND[..., pairs:]
    both_RND = np.concatenate([radius_RNP * np.cos(angle_RNP), radius_RNP * np.sin(angle_RNP)], axis=-1)
    return both_RND[..., :columns]


@dataclass(frozen=True, kw_only=True, eq=False)
class LQR:
    """x' = A x + B u + noise_std w, reward -(x.Q x + u.R u), discounted; x_0 ~ N(0, start_DD).

    Policies are u = -K x + N(0, std^2 I) with gains K [..., U, D]. Raises ValueError for shapes that
    disagree, an R that is not positive definite and a discount outside [0, 1). Source: Anderson &
    Moore (1990), Optimal control: linear quadratic methods.
    """

    a_DD: Floats
    b_DU: Floats
    state_cost_DD: Floats
    action_cost_UU: Floats
    start_DD: Floats
    noise_std: float = 0.0
    discount: float = 0.95

    def __post_init__(self) -> None:
        d, u = np.shape(self.b_DU)
        given = [np.shape(x) for x in (self.a_DD, self.state_cost_DD, self.start_DD, self.action_cost_UU)]
        if given != [(d, d)] * 3 + [(u, u)]:
            raise ValueError(
                f"b_DU is {(d, u)}, so A, Q and start must be {(d, d)} and R {(u, u)}; given {given}."
            )
        if np.linalg.eigvalsh(self.action_cost_UU).min() <= 0:
            raise ValueError("action_cost_UU must be positive definite: every action has to cost something.")
        if not 0.0 <= self.discount < 1.0:
            raise ValueError(f"discount is {self.discount:g}, expected 0 <= discount < 1.")

    def optimal_gain(self) -> Floats:
        """K = (R + discount B.P B)^-1 discount B.P A, [U, D], P of the discounted Riccati equation."""
        ahead_UD = self.discount * self.b_DU.T @ self.riccati()
        inner_UU = self.action_cost_UU + ahead_UD @ self.b_DU
        return np.asarray(np.linalg.solve(inner_UU, ahead_UD @ self.a_DD))

    def riccati(self) -> Floats:
        """P with V*(x) = -x.P x - const, [D, D]: undiscounted, with sqrt(discount) A and sqrt(discount) B."""
        from scipy.linalg import solve_discrete_are

        root = np.sqrt(self.discount)
        p_DD = solve_discrete_are(root * self.a_DD, root * self.b_DU, self.state_cost_DD, self.action_cost_UU)
        return np.asarray(p_DD, dtype=np.float64)

    def cost_matrix(self, gain_xUD: Floats) -> Floats:
        """P = Q + K.R K + discount (A - B K).P (A - B K), [x, D, D]; linear, inf if the sum diverges."""
        closed_xDD = self.a_DD - self.b_DU @ gain_xUD
        d = len(self.a_DD)
        paid_xDD = self.state_cost_DD + np.swapaxes(gain_xUD, -1, -2) @ self.action_cost_UU @ gain_xUD
        kron_xKK = np.einsum("...ij,...kl->...ikjl", closed_xDD, closed_xDD)
        kron_xKK = kron_xKK.reshape(*closed_xDD.shape[:-2], d * d, d * d)
        radius_x = np.sqrt(self.discount) * np.abs(np.linalg.eigvals(closed_xDD)).max(-1)
        stable_x11 = np.asarray(radius_x < 1.0)[..., None, None]
        # Zeros in place of an unstable loop keep the system solvable; its costs become inf below.
        system_xKK = np.eye(d * d) - self.discount * np.swapaxes(np.where(stable_x11, kron_xKK, 0.0), -1, -2)
        flat_xK1 = paid_xDD.reshape(*paid_xDD.shape[:-2], d * d, 1)
        p_xDD = np.linalg.solve(system_xKK, flat_xK1).reshape(paid_xDD.shape)
        return np.where(stable_x11, p_xDD, np.inf)

    def value(self, gain_xUD: Floats, std_x: ArrayLike = 0.0) -> Floats:
        """J = -tr P S_0 - (discount tr P W + std^2 tr R) / (1 - discount), [x]; W = noise^2 I + std^2 B B."""
        p_xDD, variance_x = self.cost_matrix(gain_xUD), np.asarray(std_x, np.float64) ** 2
        finite_x = np.asarray(np.isfinite(p_xDD).all((-1, -2)))
        p_xDD = np.where(finite_x[..., None, None], p_xDD, 0.0)
        spread_x = self.noise_std**2 * np.trace(p_xDD, axis1=-2, axis2=-1)
        spread_x = spread_x + variance_x * np.einsum("...ij,ju,iu->...", p_xDD, self.b_DU, self.b_DU)
        steady_x = self.discount * spread_x + variance_x * np.trace(self.action_cost_UU)
        cost_x = np.einsum("...ij,ij->...", p_xDD, self.start_DD) + steady_x / (1 - self.discount)
        return np.where(finite_x, -cost_x, -np.inf)

    def step(self, x_ND: Floats, u_NU: Floats, noise_ND: Floats) -> tuple[Floats, Floats]:
        """(next states [..., N, D], rewards [..., N])."""
        paid_N = np.einsum("...i,ij,...j->...", x_ND, self.state_cost_DD, x_ND)
        paid_N = paid_N + np.einsum("...i,ij,...j->...", u_NU, self.action_cost_UU, u_NU)
        return x_ND @ self.a_DD.T + u_NU @ self.b_DU.T + self.noise_std * noise_ND, -paid_N

    def starts(self, normal_ND: Floats) -> Floats:
        """x_0 [..., N, D] from standard normals."""
        # The jitter allows a singular covariance: a coordinate may start at a fixed value.
        root_DD = np.linalg.cholesky(self.start_DD + 1e-12 * np.eye(len(self.start_DD)))
        return np.asarray(normal_ND @ root_DD.T)


def point_mass(*, dt: float = 0.2, noise_std: float = 0.01, discount: float = 0.95, axes: int = 1) -> LQR:
    """Position and velocity along `axes` axes; the action is a force: x += dt v, v += dt u."""
    one_DD, one_DU = np.array([[1.0, dt], [0.0, 1.0]]), np.array([[0.0], [dt]])
    each, cost_DD = np.eye(axes), np.diag([1.0, 0.1])
    return LQR(
        a_DD=np.kron(each, one_DD), b_DU=np.kron(each, one_DU),
        state_cost_DD=np.asarray(np.kron(each, cost_DD), dtype=np.float64), action_cost_UU=0.1 * each,
        start_DD=np.eye(2 * axes), noise_std=noise_std, discount=discount,
    )  # fmt: skip
