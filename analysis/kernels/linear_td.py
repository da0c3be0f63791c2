"""Linear TD on samples and in parallel, and realizable but incomplete classes.

The expected update is `testbed.exact.value_learning.LinearTD`. Here are the same learner on samples, and the
factors in the error of its fixed point.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from envs import kernels
from envs.arrays import Floats
from envs.finite_mdp import FiniteMDP
from envs.logged_data import Counts
from envs.tables import running_sums
from testbed.errors import UserError


def sampled_td(
    feature_SF: Floats,
    weight_S: Floats,
    step_SS: Floats,
    reward_S: Floats,
    discount: float,
    key_R: NDArray[np.uint64],
    *,
    steps: int,
    every: int,
    step_size: ArrayLike,
    inner: ArrayLike = 1,
    start_F: Floats | None = None,
) -> Floats:
    """Weights [K, R, F] of TD on s ~ weight, s' ~ step(s), with a target copied every `inner` updates.

    w += step_size (r + discount phi' w_target - phi w) phi. step_size and inner: numbers or [R]. Its
    expectation is `LinearTD` with k = inner. Source: Sutton & Barto (2018), section 9.4; Mnih et al. (2015)
    for the target's period.
    """
    cells, width = len(key_R), feature_SF.shape[1]
    rate_R1 = np.broadcast_to(np.asarray(step_size, np.float64), (cells,))[:, None]
    inner_R = np.broadcast_to(np.asarray(inner, np.int64), (cells,))
    uniform_RTK = kernels.uniforms(np.asarray(key_R, np.uint64), 0, steps, 2)
    state_RT = np.searchsorted(running_sums(weight_S), uniform_RTK[..., 0], side="right")
    sums_SS = running_sums(step_SS)
    weight_RF = np.array(np.broadcast_to(np.zeros(width) if start_F is None else start_F, (cells, width)))
    target_RF, found = weight_RF.copy(), []
    for step in range(steps):
        target_RF = np.where((step % inner_R == 0)[:, None], weight_RF, target_RF)
        here_RF = feature_SF[state_RT[:, step]]
        next_R = (uniform_RTK[:, step, 1, None] >= sums_SS[state_RT[:, step]]).sum(-1)
        aim_R = reward_S[state_RT[:, step]] + discount * (feature_SF[next_R] * target_RF).sum(-1)
        error_R = aim_R - (here_RF * weight_RF).sum(-1)
        weight_RF = weight_RF + rate_R1 * error_R[:, None] * here_RF
        if (step + 1) % every == 0:
            found.append(weight_RF)
    return np.stack(found)


def parallel_q(
    world: FiniteMDP,
    feature_SAF: Floats,
    key_R: NDArray[np.uint64],
    *,
    players: int,
    steps: int,
    every: int,
    step_size: ArrayLike,
    ridge: ArrayLike = 0.0,
    epsilon: float = 0.1,
) -> Floats:
    """Weights [K, R, F] of online Q-learning by `players` parallel copies, without replay or target network.

    At each step every copy acts epsilon-greedily and w += step_size (mean of (r + discount max Q(s') - Q) phi
    - ridge w). Rewards are the means. Source: PQN (Gallici et al. 2025), algorithm 1 with one-step returns.
    """
    cells, tables = len(key_R), world.tables
    rate_R1, ridge_R1 = (
        np.broadcast_to(np.asarray(x, np.float64), (cells,))[:, None] for x in (step_size, ridge)
    )
    weight_RF = np.zeros((cells, feature_SAF.shape[-1]))
    mean_X = tables.mean_reward_X
    feature_XF = feature_SAF.reshape(-1, feature_SAF.shape[-1])
    # Starts have step `steps` of the stream, which no update below reaches.
    state_RN = world.start(kernels.uniforms(key_R, steps, players, 1)[..., 0])
    age_RN, found = np.zeros((cells, players), np.int64), []
    for step in range(steps):
        uniform_RNK = kernels.uniforms(key_R, step, players, 4)
        q_RSA = np.einsum("rk,sak->rsa", weight_RF, feature_SAF)
        best_RN = np.take_along_axis(q_RSA.argmax(-1), state_RN, 1)
        any_RN = (uniform_RNK[..., 1] * world.actions).astype(np.int64)
        action_RN = np.where(uniform_RNK[..., 0] < epsilon, any_RN, best_RN)
        row_RN = state_RN * world.actions + action_RN
        k_RN = (uniform_RNK[..., 2, None] >= tables.cumulative_XK[row_RN]).sum(-1)
        next_RN = tables.next_XK[row_RN, k_RN]
        ended_RN = tables.terminal_S[next_RN]
        ahead_RN = np.where(ended_RN, 0.0, np.take_along_axis(q_RSA.max(-1), next_RN, 1))
        # The mean reward includes the mean bonus, so only the successor's value is noisy.
        error_RN = mean_X[row_RN] + world.discount * ahead_RN
        error_RN = error_RN - np.take_along_axis(q_RSA.reshape(cells, -1), row_RN, 1)
        slope_RF = np.einsum("rn,rnk->rk", error_RN, feature_XF[row_RN]) / players
        weight_RF = weight_RF + rate_R1 * (slope_RF - ridge_R1 * weight_RF)
        over_RN = ended_RN | (age_RN + 1 == world.horizon)
        state_RN = np.where(over_RN, world.start(uniform_RNK[..., 3]), next_RN)
        age_RN = np.where(over_RN, 0, age_RN + 1)
        if (step + 1) % every == 0:
            found.append(weight_RF)
    return np.stack(found)


def realizable_features(q_RSA: Floats, width: int, rng: np.random.Generator) -> Floats:
    """Random features of `width` directions that span q, [R, S, A, F]: realizable, but in general not
    complete.

    The directions are normal and mixed by a random rotation, so that no single feature is q. Designed here.
    """
    if not 1 <= width <= q_RSA[0].size:
        raise UserError(f"width is {width}, expected 1 to the number of pairs, {q_RSA[0].size}.")
    scale_R11 = np.sqrt((q_RSA**2).mean((-1, -2), keepdims=True))
    extra_RSAF = rng.normal(size=(*q_RSA.shape, width - 1))
    both_RSAF = np.concatenate([(q_RSA / scale_R11)[..., None], extra_RSAF], axis=-1)
    turn_RFF = np.linalg.qr(rng.normal(size=(len(q_RSA), width, width)))[0]
    return np.einsum("rsak,rkl->rsal", both_RSAF, turn_RFF)


def lstd_q(
    counts: Counts, feature_RSAF: Floats, pi_RSA: Floats, discount: float, ridge: float = 0.0
) -> Floats:
    """Q = phi w with (Phi^T D (Phi - discount P_pi Phi) + ridge) w = Phi^T D r, [R, S, A]; D: shares of
    visits.

    The fixed point of TD from these data (Bradtke & Barto 1996), stable or not.
    """
    share_RSA = counts.visit_RSA / counts.visit_RSA.sum((-1, -2), keepdims=True)
    mean_RTF = np.einsum("rta,rtak->rtk", pi_RSA, feature_RSAF)
    ahead_RSAF = np.einsum("rsat,rtk->rsak", counts.moves_RSAS, mean_RTF)
    weighted_RSAF = share_RSA[..., None] * feature_RSAF
    system_RFF = np.einsum("rsak,rsal->rkl", weighted_RSAF, feature_RSAF - discount * ahead_RSAF)
    right_RF = np.einsum("rsak,rsa->rk", weighted_RSAF, counts.reward_RSA)
    system_RFF = system_RFF + ridge * np.eye(system_RFF.shape[-1])
    weight_RF = np.linalg.solve(system_RFF, right_RF[..., None])[..., 0]
    return np.einsum("rk,rsak->rsa", weight_RF, feature_RSAF)


def concentrability(target_RSA: Floats, data_RSA: Floats) -> Floats:
    """sqrt E_data[(d_target / d_data)^2], [R]: 1 on policy, inf if the target visits pairs without data.

    Source: Zanette (2023), as the chi-square ratio of occupancies.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio_RSA = np.where(target_RSA > 0, target_RSA**2 / data_RSA, 0.0)
    return np.asarray(np.sqrt(ratio_RSA.sum((-1, -2))))


def misalignment(
    feature_RSAF: Floats, data_RSA: Floats, moves_RSAS: Floats, pi_RSA: Floats, discount: float
) -> Floats:
    """1 / min_u |Pi g_u| / |g_u|, g_u = (I - discount P_pi) Phi u, Pi the projection on Phi in L2(data), [R];
    at least 1.

    The inverse cosine of the largest principal angle between the class and its Bellman residuals. If it is
    large, the class may not detect a residual; if it is inf, the fixed point is not unique. The error bound
    of realizable TD has this factor and concentrability, but no inherent Bellman error; compare Zanette
    (2023), When is realizability sufficient for off-policy reinforcement learning?, which may define the
    angle differently.
    """
    mean_RTF = np.einsum("rta,rtak->rtk", pi_RSA, feature_RSAF)
    residual_RSAF = feature_RSAF - discount * np.einsum("rsat,rtk->rsak", moves_RSAS, mean_RTF)
    root_RX1 = np.sqrt(data_RSA).reshape(len(data_RSA), -1, 1)
    shape = (*root_RX1.shape[:2], -1)
    bases = [np.linalg.qr(root_RX1 * x.reshape(shape))[0] for x in (feature_RSAF, residual_RSAF)]
    cosine_RF = np.linalg.svd(np.swapaxes(bases[0], -1, -2) @ bases[1], compute_uv=False)
    with np.errstate(divide="ignore"):
        return np.asarray(1.0 / np.minimum(cosine_RF[..., -1], 1.0))
