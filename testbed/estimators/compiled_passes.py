"""Compiled passes that read every row of the logged arrays once; loaded only for large data."""

import numpy as np
from numba import njit, prange

from envs.arrays import Bools, Floats, Ints

_BLOCK = 4096
_SMALLEST, _LARGEST = 1e-280, 1e280


@njit(cache=True, parallel=True, error_model="numpy")
def read_rounds(
    pi_NA: Floats,
    action_N: Ints,
    pscore_N: Floats,
    q_NA: Floats,
    live_N: Bools,
    tolerance: float,
    read_KN: Floats,
) -> bool:
    """Write pi(a|x), q(x, a) and sum_a pi q to read_KN [3, N], or without a model (q_NA [0, A]) to [1, N].

    Returns True if all rounds are valid. live_N: rounds with False are not checked; [0] checks all.

    Valid: 0 <= action < A, pi >= 0, |sum_a pi - 1| <= tolerance, 0 < pscore <= 1 and pi/pscore < inf. If any
    round is invalid, ignore what was written; the caller words the error.
    """
    n, actions = pi_NA.shape
    modeled, masked = q_NA.shape[0] == n, live_N.size == n
    blocks = (n + _BLOCK - 1) // _BLOCK
    fine_K = np.zeros(blocks, dtype=np.bool_)
    for block in prange(blocks):
        fine = True
        for i in range(block * _BLOCK, min(n, (block + 1) * _BLOCK)):
            known = (action_N[i] >= 0) & (action_N[i] < actions)
            action = (
                np.uint64(action_N[i]) if known else np.uint64(0)
            )  # signed indices are tested at every access
            total, direct, least = 0.0, 0.0, 0.0
            if modeled:
                for a in range(actions):
                    total += pi_NA[i, a]
                    direct += pi_NA[i, a] * q_NA[i, a]
                    least = min(least, pi_NA[i, a])
                read_KN[1, i] = q_NA[i, action]
                read_KN[2, i] = direct
            else:
                for a in range(actions):
                    total += pi_NA[i, a]
                    least = min(least, pi_NA[i, a])
            target, chance = pi_NA[i, action], pscore_N[i]
            read_KN[0, i] = target
            law = (least >= 0.0) & (abs(total - 1.0) <= tolerance)
            weight = (chance > 0.0) & (chance <= 1.0) & (target / chance < np.inf)
            fine &= (known & law & weight) | (masked and not live_N[i])
        fine_K[block] = fine
    return bool(fine_K.all())


@njit(cache=True, parallel=True, error_model="numpy")
def weigh_steps(
    rho_RNT: Floats,
    reward_RNT: Floats,
    q_RNT: Floats,
    v_RNT: Floats,
    plan_RKT: Floats,
    unit_KRN: Floats,
    part_RBKT: Floats,
) -> bool:
    """Sum over the steps of every episode and over the episodes of every step, w_t = rho_0 ... rho_t.

    unit_KRN [2, R, N]: w_{T-1}, and sum_t c_t w_t (r_t - Qhat_t - x_t) + d_t w_{t-1} (Vhat_t - y_t); plan_RKT
    [R, 4, T] holds c, x, d, y. part_RBKT [R, B, 3, T], zero at the call: sums of w_t, w_t (r_t - Qhat_t -
    x_t) and w_{t-1} (Vhat_t - y_t) over B equal blocks of episodes. q_RNT and v_RNT [0, 0, 0]: no model.

    Returns True if every w_t is far from the limits of double precision or 0 because of a zero ratio.
    Otherwise use logarithms: a product may underflow and return.
    """
    replicates, n, steps = reward_RNT.shape
    modeled, blocks = q_RNT.shape[0] == replicates, part_RBKT.shape[1]
    size = (n + blocks - 1) // blocks
    fine_K = np.zeros(replicates * blocks, dtype=np.bool_)
    for job in prange(replicates * blocks):
        r, block, fine = job // blocks, job % blocks, True
        plan_KT, part_KT = plan_RKT[r], part_RBKT[r, block]
        for i in range(block * size, min(n, (block + 1) * size)):
            weight, term, dead = 1.0, 0.0, False
            for t in range(steps):
                error = reward_RNT[r, i, t] - plan_KT[1, t]
                if modeled:
                    error -= q_RNT[r, i, t]
                    model = weight * (v_RNT[r, i, t] - plan_KT[3, t])
                    part_KT[2, t] += model
                    term += plan_KT[2, t] * model
                dead |= rho_RNT[r, i, t] == 0.0
                weight *= rho_RNT[r, i, t]
                fine &= ((weight > _SMALLEST) & (weight < _LARGEST)) | (dead & (weight == 0.0))
                part_KT[0, t] += weight
                part_KT[1, t] += weight * error
                term += plan_KT[0, t] * weight * error
            unit_KRN[0, r, i], unit_KRN[1, r, i] = weight, term
        fine_K[job] = fine
    return bool(fine_K.all())
