"""Off-policy values of a confounded MDP by a binary instrument: Wald ratios for rewards and transitions."""

from dataclasses import dataclass

import numpy as np

from envs.arrays import Floats, Ints
from envs.logged_data import Log
from testbed.errors import UserError

WEAKEST = 1e-12
"""First stage below which nothing is identified."""


@dataclass(frozen=True)
class InstrumentedModel:
    """E[r | s, do(a)] and P(s' | s, do(a)) among live states, with the first stage P(a|z=1, s) - P(a|z=0, s).

    Estimated probabilities may be negative: clipping would bias quantities that are linear in them.
    """

    moves_RSAS: Floats
    reward_RSA: Floats
    first_RSA: Floats


def instrumented_model(log: Log, z_RBT: Ints, states: int, actions: int) -> InstrumentedModel:
    """theta_Y(s, a) = (difference in z of E[Y 1{A=a} | z, s]) / (of P(A=a | z, s)), Y = r and Y = 1{s'}.

    Identified if z is independent of the hidden cause, affects Y only through the action, and has an effect
    on the action that does not depend on the cause. Source: Xu et al. (2023), An instrumental variable
    approach to confounded off-policy evaluation; one step is `testbed.estimators.instrumental_variable`.
    Raises UserError for a state without data under one value of z, and an action that z does not affect.
    """
    taken, earned, going = [], [], []
    for value in (0, 1):
        counts = log.counts(states, actions, (z_RBT == value).astype(np.float64))
        total_RS1 = counts.visit_RSA.sum(-1, keepdims=True)
        if not (total_RS1 > 0).all():
            place = tuple(int(i) for i in np.argwhere(total_RS1[..., 0] == 0)[0])
            raise UserError(f"No step in (cell, state) {place} has z = {value}; log more episodes.")
        taken.append(counts.visit_RSA / total_RS1)
        earned.append(counts.visit_RSA * counts.reward_RSA / total_RS1)
        going.append(counts.going_RSAS / total_RS1[..., None])
    first_RSA = taken[1] - taken[0]
    if (np.abs(first_RSA) < WEAKEST).any():
        place = tuple(int(i) for i in np.argwhere(np.abs(first_RSA) < WEAKEST)[0])
        raise UserError(f"The instrument does not move (cell, state, action) {place}: nothing is identified.")
    return InstrumentedModel(
        (going[1] - going[0]) / first_RSA[..., None], (earned[1] - earned[0]) / first_RSA, first_RSA
    )


def instrumented_value(
    log: Log, z_RBT: Ints, pi_SA: Floats, start_S: Floats, discount: float
) -> tuple[Floats, Floats]:
    """V = start . (I - discount P_pi)^-1 r_pi of the instrumented model, and its standard error, [R] each.

    Delta method: with Y = r + discount V(s') and d = (I - discount P_pi)^-T start the error is sum_s d(s)
    (mean over z = 1 minus mean over z = 0 of pi(a|s)/first (Y - theta_Y)), treating steps as independent
    given (s, z).
    """
    states, actions = pi_SA.shape
    model = instrumented_model(log, z_RBT, states, actions)
    step_RSS = np.einsum("sa,rsat->rst", pi_SA, model.moves_RSAS)
    system_RSS = np.eye(states) - discount * step_RSS
    value_RS = np.linalg.solve(system_RSS, (pi_SA * model.reward_RSA).sum(-1)[..., None])[..., 0]
    weight_RS = np.linalg.solve(
        np.swapaxes(system_RSS, -1, -2), np.broadcast_to(start_S[:, None], (*value_RS.shape, 1))
    )[..., 0]
    theta_RSA = model.reward_RSA + discount * np.einsum("rsat,rt->rsa", model.moves_RSAS, value_RS)
    cell_R11 = np.arange(len(value_RS))[:, None, None]
    ahead_RBT = np.where(log.going_RBT, value_RS[cell_R11, log.next_RBT], 0.0)
    place = cell_R11, log.state_RBT, log.action_RBT
    residual_RBT = log.reward_RBT + discount * ahead_RBT - theta_RSA[place]
    residual_RBT = residual_RBT * (pi_SA / model.first_RSA)[place]
    key_RBT = (cell_R11 * states + log.state_RBT) * 2 + z_RBT
    mask = log.mask_RBT
    sums = [
        np.bincount(key_RBT[mask], x, minlength=len(value_RS) * states * 2).reshape(-1, states, 2)
        for x in (np.ones(int(mask.sum())), residual_RBT[mask], residual_RBT[mask] ** 2)
    ]
    mean_RS2 = sums[1] / sums[0]
    variance_RS2 = (sums[2] / sums[0] - mean_RS2**2) / np.maximum(sums[0] - 1, 1)
    variance_R = (weight_RS**2 * variance_RS2.sum(-1)).sum(-1)
    return (value_RS * start_S).sum(-1), np.asarray(np.sqrt(variance_R))
