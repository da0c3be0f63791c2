"""Compiled passes over logged arrays that read every row once; loaded only for data that are large."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from testbed.estimators import Floats
from testbed.estimators.bandit import Ints

_BLOCK = 4096


@njit(cache=True, parallel=True)
def read_rounds(
    pi_NA: Floats, action_N: Ints, pscore_N: Floats, q_NA: Floats, tolerance: float, read_KN: Floats
) -> bool:
    """Write pi(a|x), q(x, a) and sum_a pi q to read_KN [3, N]; q_NA [0, A]: no model, and [1, N].

    Returns whether all rounds are in order.

    In order: 0 <= action < A, pi >= 0, |sum_a pi - 1| <= tolerance, 0 < pscore <= 1 and pi/pscore < inf.
    What is written is meant only then; the caller words the error otherwise.
    """
    n, actions = pi_NA.shape
    modeled = q_NA.shape[0] == n
    blocks = (n + _BLOCK - 1) // _BLOCK
    fine_B = np.zeros(blocks, dtype=np.bool_)
    for block in prange(blocks):
        fine = True
        for i in range(block * _BLOCK, min(n, (block + 1) * _BLOCK)):
            action = action_N[i]
            if action < 0 or action >= actions:
                fine = False
                action = 0
            total, direct = 0.0, 0.0
            if modeled:
                for a in range(actions):
                    total += pi_NA[i, a]
                    direct += pi_NA[i, a] * q_NA[i, a]
                    fine &= pi_NA[i, a] >= 0.0
                read_KN[1, i] = q_NA[i, action]
                read_KN[2, i] = direct
            else:
                for a in range(actions):
                    total += pi_NA[i, a]
                    fine &= pi_NA[i, a] >= 0.0
            target, chance = pi_NA[i, action], pscore_N[i]
            read_KN[0, i] = target
            fine &= abs(total - 1.0) <= tolerance and 0.0 < chance <= 1.0
            fine &= chance > 0.0 and target / chance < np.inf
        fine_B[block] = fine
    return bool(fine_B.all())
