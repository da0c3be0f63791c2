"""Discounted values with an infinite horizon: the same worlds, solved as linear systems."""

import numpy as np

from envs.arrays import Floats
from envs.checks import as_policies
from envs.finite_mdp import FiniteMDP


def state_value(world: FiniteMDP, pi_xSA: Floats) -> Floats:
    """V = (I - discount P_pi)^-1 r_pi, [x, S]; 0 in terminal states. Ignores `world.horizon`."""
    pi_xSA = _policies(world, pi_xSA)
    reward_xS = np.where(world.tables.terminal_S, 0.0, (pi_xSA * world.mean_reward_SA).sum(axis=-1))
    return _solve(_resolvent(world, pi_xSA), reward_xS)


def value(world: FiniteMDP, pi_xSA: Floats) -> Floats:
    """J = start . V, [x]."""
    return (state_value(world, pi_xSA) * world.start_S).sum(axis=-1)


def occupancy(world: FiniteMDP, pi_xSA: Floats) -> Floats:
    """sum_t discount^t P(s_t = s, episode not over) = (I - discount P_pi^T)^-1 start, [x, S]."""
    pi_xSA = _policies(world, pi_xSA)
    transposed_xSS = np.swapaxes(_resolvent(world, pi_xSA), -1, -2)
    start_xS = np.broadcast_to(world.start_S, transposed_xSS.shape[:-1])
    return _solve(transposed_xSS, start_xS)


def q_value(world: FiniteMDP, pi_xSA: Floats) -> Floats:
    """Q(s, a) = mean reward + discount * E[V(s')], [x, S, A]; 0 in terminal states."""
    ahead_xSA = np.einsum("sat,...t->...sa", world.transition_SAS, state_value(world, pi_xSA))
    q_xSA = world.mean_reward_SA + world.discount * ahead_xSA
    return np.where(world.tables.terminal_S[:, None], 0.0, q_xSA)


def gradient(world: FiniteMDP, pi_xSA: Floats) -> Floats:
    """dJ/dlogits = d(s) pi(a|s) (Q(s, a) - V(s)) of the tabular softmax policy, [x, S, A]."""
    advantage_xSA = q_value(world, pi_xSA) - state_value(world, pi_xSA)[..., None]
    return occupancy(world, pi_xSA)[..., None] * _policies(world, pi_xSA) * advantage_xSA


def _policies(world: FiniteMDP, pi_xSA: Floats) -> Floats:
    return as_policies("pi", pi_xSA, world.states, world.actions).reshape(np.shape(pi_xSA))


def _resolvent(world: FiniteMDP, pi_xSA: Floats) -> Floats:
    """I - discount P_pi over live states, [x, S, S]; ValueError if the discounted sum may diverge."""
    if world.discount >= 1.0:
        raise ValueError(
            f"discount is {world.discount:g}, expected less than 1 without a horizon; "
            "use the methods of the world, which stop at its horizon."
        )
    alive_S = ~world.tables.terminal_S
    # Terminal states are cut off on both sides: their rows become those of the identity.
    step_xSS = np.einsum("...sa,sat->...st", pi_xSA, world.transition_SAS) * (alive_S[:, None] & alive_S)
    return np.eye(world.states) - world.discount * step_xSS


def _solve(matrix_xSS: Floats, right_xS: Floats) -> Floats:
    return np.asarray(np.linalg.solve(matrix_xSS, right_xS[..., None])[..., 0], dtype=np.float64)
