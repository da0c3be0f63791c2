"""Adaptive sampling: behaviors that make the data look as if they had come from the target policy."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from envs.arrays import Floats
from envs.finite_mdp import FiniteMDP
from envs.offline import Counts
from envs.tables import running_sums
from testbed.offline.improvement import softmax

BISECTIONS = 30
"""Halvings of the step that keep the behavior within its KL budget."""


def adapted_policy(pi_RSA: Floats, visit_RSA: Floats, step_size: ArrayLike, kl_budget: float) -> Floats:
    """mu = softmax(log pi - step n(s) (n(a|s)/n(s) - pi)), [R, S, A]: more of what the data have too little
    of.

    A gradient step down the data's log-likelihood under pi; where KL(mu || pi) would exceed the budget in a
    state, its step is halved until it does not. step_size: a number or [R]; 0 is pi itself. Source: ROS
    (Zhong et al. 2022) and PROPS (Corrado & Hanna 2023), whose PPO-clipped step is a KL-clipped one here.
    """
    total_RS1 = visit_RSA.sum(-1, keepdims=True)
    step_R11 = np.asarray(step_size, np.float64).reshape(-1, 1, 1)
    pull_RSA = -step_R11 * (visit_RSA - total_RS1 * pi_RSA)
    with np.errstate(divide="ignore"):
        log_RSA = np.log(pi_RSA)
    scale_RS1 = np.ones_like(total_RS1)
    for _ in range(BISECTIONS):
        logit_RSA = log_RSA + scale_RS1 * pull_RSA
        mu_RSA = softmax(logit_RSA)
        ratio_RSA = np.where(
            mu_RSA > 0, np.log(np.where(mu_RSA > 0, mu_RSA, 1.0)) - np.where(pi_RSA > 0, log_RSA, 0.0), 0.0
        )
        over_RS1 = (mu_RSA * ratio_RSA).sum(-1, keepdims=True) > kl_budget
        if not over_RS1.any():
            return np.asarray(mu_RSA)
        scale_RS1 = np.where(over_RS1, scale_RS1 / 2, scale_RS1)
    return np.where(over_RS1, pi_RSA, mu_RSA)


def sampling_error(visit_RSA: Floats, pi_RSA: Floats) -> Floats:
    """sum_s n(s)/n TV(n(.|s)/n(s), pi(.|s)), [R]: how far the data are from on-policy, given their states.

    Source: Zhong et al. (2022), with total variation in place of KL.
    """
    total_RS = visit_RSA.sum(-1)
    law_RSA = visit_RSA / np.maximum(total_RS, 1e-300)[..., None]
    tv_RS = np.abs(law_RSA - pi_RSA).sum(-1) / 2
    return np.asarray((total_RS * tv_RS).sum(-1) / np.maximum(total_RS.sum(-1), 1e-300))


def adaptive_sampling(
    world: FiniteMDP,
    pi_RSA: Floats,
    key_R: NDArray[np.uint64],
    *,
    steps: int,
    every: int,
    step_size: ArrayLike,
    kl_budget: float = 0.1,
    refresh: int = 1,
) -> tuple[Counts, Floats]:
    """Play `steps` steps by a behavior that is adapted every `refresh` of them: the counts, and the sampling
    error after each `every` steps, [E, R].

    step_size 0 draws independently from pi. Rewards in the counts are the means. Source: the loop of PROPS
    (Corrado & Hanna 2023), algorithm 1.
    """
    cells, states, actions = pi_RSA.shape
    tables, place_R = world.tables, np.arange(cells)
    from envs import kernels  # imported here: it loads the compiler

    uniform_RTK = kernels.uniforms(np.asarray(key_R, np.uint64), 0, steps, 3)
    visit_RSA = np.zeros((cells, states, actions))
    going_RSAS = np.zeros((cells, states, actions, states))
    state_R, age_R = world.start(uniform_RTK[:, :1, 2])[:, 0], np.zeros(cells, np.int64)
    errors = []
    mu_RSA = np.asarray(pi_RSA)
    for step in range(steps):
        if step % refresh == 0:
            mu_RSA = adapted_policy(pi_RSA, visit_RSA, step_size, kl_budget)
        sums_RA = running_sums(mu_RSA[place_R, state_R])
        action_R = (uniform_RTK[:, step, 0, None] >= sums_RA).sum(-1)
        row_R = state_R * actions + action_R
        k_R = (uniform_RTK[:, step, 1, None] >= tables.cumulative_XK[row_R]).sum(-1)
        next_R = tables.next_XK[row_R, k_R]
        visit_RSA[place_R, state_R, action_R] += 1.0
        ended_R = tables.terminal_S[next_R]
        going_RSAS[place_R, state_R, action_R, next_R] += ~ended_R
        age_R = age_R + 1
        over_R = ended_R | (age_R == world.horizon)
        fresh_R = world.start(uniform_RTK[:, (step + 1) % steps, 2][:, None])[:, 0]
        state_R, age_R = np.where(over_R, fresh_R, next_R), np.where(over_R, 0, age_R)
        if (step + 1) % every == 0:
            errors.append(sampling_error(visit_RSA, pi_RSA))
    mean_RSA = np.where(visit_RSA > 0, world.mean_reward_SA, 0.0)
    return Counts(visit_RSA, going_RSAS, mean_RSA), np.stack(errors)
