"""Optimistic actor-critic with rare switching, over episodes of a finite horizon, with or without offline
data.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from envs import kernels
from envs.arrays import Floats
from envs.finite_mdp import FiniteMDP
from envs.offline import Counts, exact_model
from envs.tables import running_sums
from testbed.errors import UserError
from testbed.offline.improvement import softmax


def optimal_values(world: FiniteMDP) -> Floats:
    """max_pi J over the horizon, by backward induction: the value that regret is measured against.

    Source: Puterman (1994), section 4.5.
    """
    moves_SAS, reward_SA = exact_model(world)
    value_S = np.zeros(world.states)
    for _ in range(world.horizon):
        value_S = (reward_SA + world.discount * moves_SAS @ value_S).max(-1)
    return np.asarray(world.start_S @ value_S)


def step_values(world: FiniteMDP, pi_RKSA: Floats) -> Floats:
    """J of policies that depend on the step, [R]. Source: Puterman (1994), section 4.2."""
    moves_SAS, reward_SA = exact_model(world)
    value_RS = np.zeros((len(pi_RKSA), world.states))
    for t in reversed(range(world.horizon)):
        q_RSA = reward_SA + world.discount * np.einsum("sat,rt->rsa", moves_SAS, value_RS)
        value_RS = (pi_RKSA[:, t] * q_RSA).sum(-1)
    return np.asarray(value_RS @ world.start_S)


def optimistic_q(counts: Counts, horizon: int, discount: float, bonus_R: Floats, largest: float) -> Floats:
    """Q_h = min(r + bonus / sqrt(max(n, 1)) + discount P max Q_{h+1}, (H - h) largest), [R, K, S, A].

    Pairs without data take the upper limit. Source: UCB value iteration (Azar, Osband & Munos 2017) with its
    simple bonus; the critic that aims at the optimal Q in Tan, Fan & Wei (2025).
    """
    width_RSA = bonus_R[:, None, None] / np.sqrt(np.maximum(counts.visit_RSA, 1.0))
    moves_RSAS, found = counts.moves_RSAS, []
    value_RS1 = np.zeros((*counts.visit_RSA.shape[:2], 1))
    for left in range(1, horizon + 1):
        q_RSA = counts.reward_RSA + width_RSA + discount * (moves_RSAS @ value_RS1[:, None])[..., 0]
        q_RSA = np.where(counts.seen_RSA, np.minimum(q_RSA, left * largest), left * largest)
        value_RS1 = q_RSA.max(-1)[..., None]
        found.append(q_RSA)
    return np.stack(found[::-1], axis=1)


def optimistic_actor_critic(
    world: FiniteMDP,
    key_R: NDArray[np.uint64],
    *,
    episodes: int,
    bonus: ArrayLike,
    actor_rate: ArrayLike,
    switch: float = 2.0,
    offline: Counts | None = None,
) -> tuple[Floats, NDArray[np.int64]]:
    """Regret J* - J(pi_k) of every episode, [K, R], and how often the critic was switched, [R].

    The critic is refitted when some pair's visits have grown `switch`-fold (from at least 1) since the last
    time; the actor then starts anew and takes a mirror step logits_h += actor_rate Q_h after each episode,
    inf being greedy. offline: counts that are there from the start (hybrid). Source: Tan, Fan & Wei (2025),
    "Actor-critics can achieve optimal sample efficiency", for a table. Raises UserError unless switch > 1 and
    rewards are within [0, 1] and not noisy beyond Bernoulli.
    """
    _, reward_SA = exact_model(world)
    if switch <= 1.0 or world.noise == "normal" or reward_SA.min() < 0 or reward_SA.max() > 1:
        raise UserError("Expected switch > 1, and mean rewards in [0, 1] without normal noise.")
    cells, states, actions, horizon = len(key_R), world.states, world.actions, world.horizon
    place_R, tables = np.arange(cells), world.tables
    bonus_R, rate_R = (np.broadcast_to(np.asarray(x, np.float64), (cells,)) for x in (bonus, actor_rate))
    shape = (cells, states, actions)
    counts = offline or Counts(np.zeros(shape), np.zeros((*shape, states)), np.zeros(shape))
    # Copies: the visits are counted in place.
    visit_RSA, going_RSAS = counts.visit_RSA.copy(), counts.going_RSAS.copy()
    known_RSA, switches_R = visit_RSA.copy(), np.zeros(cells, np.int64)
    q_RKSA = optimistic_q(counts, horizon, world.discount, bonus_R, 1.0)
    age_R, best, regrets = np.ones(cells), float(optimal_values(world)), []
    for episode in range(episodes):
        pi_RKSA = _actor(q_RKSA, rate_R * age_R)
        regrets.append(best - step_values(world, pi_RKSA))
        uniform_RTK = kernels.uniforms(np.asarray(key_R, np.uint64), episode, horizon + 1, 2)
        state_R, live_R = world.start(uniform_RTK[:, horizon, :1])[:, 0], np.ones(cells, bool)
        for t in range(horizon):
            sums_RA = running_sums(pi_RKSA[place_R, t, state_R])
            action_R = (uniform_RTK[:, t, 0, None] >= sums_RA).sum(-1)
            row_R = state_R * actions + action_R
            next_R = tables.next_XK[
                row_R, (uniform_RTK[:, t, 1, None] >= tables.cumulative_XK[row_R]).sum(-1)
            ]
            going_R = live_R & ~tables.terminal_S[next_R]
            visit_RSA[place_R, state_R, action_R] += live_R
            going_RSAS[place_R, state_R, action_R, next_R] += going_R
            state_R, live_R = np.where(going_R, next_R, state_R), going_R
        grown_R = (visit_RSA >= np.maximum(switch * known_RSA, known_RSA + 1)).any((-1, -2))
        age_R = np.where(grown_R, 1.0, age_R + 1.0)
        if grown_R.any():
            # Mean rewards are read, not sampled: the bonus covers the transitions.
            seen = Counts(
                visit_RSA[grown_R], going_RSAS[grown_R], np.where(visit_RSA[grown_R] > 0, reward_SA, 0.0)
            )
            q_RKSA[grown_R] = optimistic_q(seen, horizon, world.discount, bonus_R[grown_R], 1.0)
            known_RSA[grown_R] = visit_RSA[grown_R]
            switches_R = switches_R + grown_R
    return np.stack(regrets), switches_R


def _actor(q_RKSA: Floats, scale_R: Floats) -> Floats:
    """softmax(scale Q), greedy (first among equals) where scale is infinite."""
    endless_R = np.isinf(scale_R)
    logit_RKSA = np.where(endless_R, 1.0, scale_R)[:, None, None, None] * q_RKSA
    pi_RKSA = softmax(logit_RKSA)
    if endless_R.any():
        pi_RKSA[endless_R] = np.eye(q_RKSA.shape[-1])[q_RKSA[endless_R].argmax(-1)]
    return pi_RKSA
