"""Improvement steps of a tabular policy in closed form: bounded ratios, an entropy set-point.

Tables are [S, A] or [A]; advantages are given, so bandits and MDPs work alike.
"""

import numpy as np
from scipy import optimize, special

from envs import infinite_horizon
from envs.arrays import Floats
from envs.finite_mdp import FiniteMDP
from testbed.errors import UserError


def soft_q(world: FiniteMDP, pi_SA: Floats, alpha: float) -> Floats:
    """Q of pi with the reward alpha H(pi(. | s')) in every later state, infinite horizon, [S, A].

    Source: Haarnoja et al. (2018), SAC, equation 2.
    """
    bonus_S = -alpha * (pi_SA * np.log(pi_SA)).sum(-1)
    step_SS = np.einsum("sa,sat->st", pi_SA, world.transition_SAS)
    reward_S = (pi_SA * world.mean_reward_SA).sum(-1) + bonus_S
    value_S = np.linalg.solve(np.eye(world.states) - world.discount * step_SS, reward_S)
    return np.asarray(world.mean_reward_SA + world.discount * world.transition_SAS @ value_S)


def bounded_step(mu_SA: Floats, adv_SA: Floats, eps: float) -> Floats:
    """argmax_pi E_pi A with |pi / mu - 1| <= eps: 1 + eps above mu's median of A, 1 - eps below it, [S, A].

    The median's answer takes the rest of the mass. Source: bounded ratio RL, arXiv:2604.18578;
    its optimum is a step at the median. The treatment of atoms is derived here.

    Raises UserError unless 0 < eps < 1.
    """
    if not 0 < eps < 1:
        raise UserError(f"eps is {eps:g}, expected 0 < eps < 1: a ratio cannot fall below 0.")
    order_SA = np.argsort(adv_SA, axis=-1, kind="stable")
    mass_SA = np.take_along_axis(mu_SA, order_SA, -1)
    below_SA = np.cumsum(mass_SA, axis=-1) - mass_SA
    # Share of each answer's mass that lies below the median.
    low_SA = np.clip(0.5 - below_SA, 0.0, mass_SA)
    ratio_SA = np.empty_like(mu_SA)
    np.put_along_axis(ratio_SA, order_SA, 1.0 + eps * (1.0 - 2.0 * low_SA / mass_SA), -1)
    return ratio_SA * mu_SA


def spread_from_median(mu_SA: Floats, adv_SA: Floats) -> Floats:
    """E_mu |A - median_mu A| of every state, [S]; `bounded_step` gains eps times it."""
    order_SA = np.argsort(adv_SA, axis=-1, kind="stable")
    mass_SA, sorted_SA = (np.take_along_axis(x, order_SA, -1) for x in (mu_SA, adv_SA))
    middle_S1 = (np.cumsum(mass_SA, axis=-1) >= 0.5).argmax(-1)[:, None]
    return np.asarray((mass_SA * np.abs(sorted_SA - np.take_along_axis(sorted_SA, middle_S1, -1))).sum(-1))


def advantage(world: FiniteMDP, pi_SA: Floats) -> Floats:
    """Q - V of pi with an infinite horizon, [S, A]."""
    return infinite_horizon.q_value(world, pi_SA) - infinite_horizon.state_value(world, pi_SA)[..., None]


def entropy(pi_xA: Floats) -> Floats:
    """-sum pi log pi, [x]; 0 log 0 = 0."""
    return np.asarray(special.entr(pi_xA).sum(-1))


def tempered(log_pi_A: Floats, set_point: float) -> tuple[Floats, float]:
    """Return the policy pi^k / Z with the set-point as its entropy, and k > 0.

    Raises UserError for a set-point outside (0, log A), or one that no power of the policy reaches.
    """
    most = float(np.log(len(log_pi_A)))
    if not 0 < set_point < most:
        raise UserError(f"The set-point is {set_point:g}, expected 0 < set-point < log A = {most:.4g}.")

    def excess(log_k: float) -> float:
        return float(entropy(special.softmax(np.exp(log_k) * log_pi_A))) - set_point

    if not excess(-25.0) > 0 > excess(25.0):
        raise UserError("No power of this policy has that entropy: its most likely answers tie.")
    k = float(np.exp(optimize.brentq(excess, -25.0, 25.0, xtol=1e-13)))
    return np.asarray(special.softmax(k * log_pi_A)), k
