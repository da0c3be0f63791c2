"""Fitted Q evaluation with a table, and cross-fitted Qhat for the doubly robust estimators."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from envs.arrays import Bools, Floats, Ints
from testbed.errors import UserError
from testbed.estimators import Estimate, estimator
from testbed.estimators.episode_counts import merged, ratio, tally, unflatten
from testbed.estimators.trajectory_weights import LoggedEpisodes


@dataclass(frozen=True)
class Transitions:
    """All steps of a data set in a row, [..., M]: pair s * A + a, reward, next state, and if one follows.

    live_M marks usable steps: inside an episode, with a known successor or end.
    """

    pair_M: Ints
    reward_M: Floats
    next_M: Ints
    going_M: Bools
    live_M: Bools


def transitions(episodes: LoggedEpisodes) -> Transitions:
    """Return the usable steps; without next_state_NT this excludes the last step of a full-length episode."""
    state_NT, pi_SA = episodes.demand("state_NT"), episodes.demand("pi_SA")
    live_NT = episodes.live_NT
    goes_on_NT = np.concatenate([live_NT[..., 1:], np.zeros_like(live_NT[..., :1])], axis=-1)
    done_NT = episodes.done_NT
    if done_NT is None:
        done_NT = live_NT & ~goes_on_NT
        # An episode that fills all T steps may go on beyond them.
        done_NT[..., -1] = False
    done_NT = np.asarray(done_NT, dtype=bool)
    usable_NT, next_NT = live_NT, episodes.next_state_NT
    if next_NT is None:
        usable_NT = live_NT & (goes_on_NT | done_NT)
        next_NT = np.concatenate([state_NT[..., 1:], np.zeros_like(state_NT[..., :1])], axis=-1)
    pair_NT = state_NT * pi_SA.shape[1] + episodes.demand("action_NT")
    each = (pair_NT, episodes.reward_NT, next_NT, ~done_NT, usable_NT)
    return Transitions(*(merged(np.asarray(values_NT)) for values_NT in each))


def next_pair_counts(step: Transitions, pi_SA: Floats) -> Floats:
    """sum over transitions of 1{pair} pi(a' | s'), [..., S A, S A]; terminal states have no next pair."""
    states, size = len(pi_SA), pi_SA.size
    move_M, goes_M = step.pair_M * states + step.next_M, step.live_M & step.going_M
    count_XS = unflatten(tally(move_M, size * states, goes_M), (size, states))
    return (count_XS[..., None] * pi_SA).reshape(*count_XS.shape[:-1], size)


def first_dist(episodes: LoggedEpisodes) -> Floats:
    """Shares of the logged first states, [..., S]."""
    state_N = episodes.demand("state_NT")[..., 0]
    return tally(state_N, len(episodes.demand("pi_SA")), np.ones(())) / state_N.shape[-1]


def fitted_q(episodes: LoggedEpisodes, *, unseen: float = 0.0) -> Floats:
    """Fixed point Q(s, a) = mean over its transitions of r + gamma sum_b pi(b|s') Q(s', b), [..., S, A].

    Infinite horizon: the value in the world that the counts describe (certainty equivalence). Pairs without
    data have Q = unseen. Raises UserError for gamma = 1, where a fixed point may not exist.
    """
    if episodes.gamma >= 1.0:
        raise UserError("gamma is 1, expected less without a horizon; take the estimator fqe_finite.")
    pi_SA, step = episodes.demand("pi_SA"), transitions(episodes)
    visits_X = tally(step.pair_M, pi_SA.size, step.live_M)
    reward_X = ratio(tally(step.pair_M, pi_SA.size, step.live_M * step.reward_M), visits_X, unseen)
    visits_XX = np.broadcast_to(visits_X[..., None], (*visits_X.shape, pi_SA.size))
    ahead_XX = ratio(next_pair_counts(step, pi_SA), visits_XX)
    q_X1 = np.linalg.solve(np.eye(pi_SA.size) - episodes.gamma * ahead_XX, reward_X[..., None])
    return unflatten(np.asarray(q_X1[..., 0], dtype=np.float64), pi_SA.shape)


def fitted_q_steps(episodes: LoggedEpisodes) -> Floats:
    """Q_t(s, a) = mean over the steps t in (s, a) of r + gamma V_{t+1}(s'), V_T = 0, [..., T, S, A].

    One table per step, for a finite horizon; 0 without data. s' is the episode's next logged state.
    """
    pi_SA, state_NT = episodes.demand("pi_SA"), episodes.demand("state_NT")
    pair_NT, live_NT = state_NT * pi_SA.shape[1] + episodes.demand("action_NT"), episodes.live_NT
    later_N, found = np.zeros(state_NT.shape[:-1]), []
    for t in reversed(range(episodes.steps)):
        target_N = episodes.reward_NT[..., t] + episodes.gamma * later_N
        visits_X = tally(pair_NT[..., t], pi_SA.size, live_NT[..., t])
        total_X = tally(pair_NT[..., t], pi_SA.size, live_NT[..., t] * target_N)
        q_SA = unflatten(ratio(total_X, visits_X), pi_SA.shape)
        later_N = live_NT[..., t] * np.take_along_axis((pi_SA * q_SA).sum(-1), state_NT[..., t], -1)
        found.append(q_SA)
    return np.stack(found[::-1], axis=-3)


@estimator(
    "fqe", source="Le, Voloshin & Yue (2019), with a table", family="trajectory",
    needs=("state_NT", "action_NT", "pi_SA"),
)  # fmt: skip
def fqe(episodes: LoggedEpisodes, *, unseen: float = 0.0) -> Estimate:
    """mean over first states of sum_a pi Q, Q = fitted_q: the discounted value with an infinite horizon.

    Targets use the next observation and stop at terminal states. If every pair is visited, it is the
    certainty-equivalence value (I - gamma P^pi)^-1 R of the counts. stderr and ess are NaN.
    """
    v_S = (fitted_q(episodes, unseen=unseen) * episodes.demand("pi_SA")).sum(-1)
    return model_value((first_dist(episodes) * v_S).sum(-1))


@estimator(
    "fqe_finite", source="Le, Voloshin & Yue (2019), with a table per step", family="trajectory",
    needs=("state_NT", "action_NT", "pi_SA"),
)  # fmt: skip
def fqe_finite(episodes: LoggedEpisodes) -> Estimate:
    """mean over first states of sum_a pi Q_0, Q = fitted_q_steps: the value of T steps. stderr, ess: NaN."""
    v_S = (fitted_q_steps(episodes)[..., 0, :, :] * episodes.demand("pi_SA")).sum(-1)
    return model_value((first_dist(episodes) * v_S).sum(-1))


def model_value(value: Floats) -> Estimate:
    """Return an estimate without standard error and ESS: it is not a mean of weighted rewards."""
    return Estimate(np.asarray(value), np.full_like(value, np.nan), np.full_like(value, np.nan))


def cross_fitted(
    episodes: LoggedEpisodes, fit: Callable[[LoggedEpisodes], Floats], folds: int = 2
) -> LoggedEpisodes:
    """Return the episodes with q_NT and v_NT from Qhat = fit(the other folds), [..., T, S, A].

    Episode i is in fold i % folds. Raises UserError unless 2 <= folds <= N.
    """
    n = episodes.reward_NT.shape[-2]
    if not 2 <= folds <= n:
        raise UserError(f"folds is {folds}, expected 2 to the number of episodes, {n}.")
    fold_N = np.arange(n) % folds
    q_NT, v_NT = np.zeros_like(episodes.reward_NT), np.zeros_like(episodes.reward_NT)
    for fold in range(folds):
        inside_N = fold_N == fold
        own = taken(episodes, inside_N).with_model(fit(taken(episodes, ~inside_N)))
        q_NT[..., inside_N, :], v_NT[..., inside_N, :] = own.demand("q_NT"), own.demand("v_NT")
    return dataclasses.replace(episodes, q_NT=q_NT, v_NT=v_NT)


def taken(episodes: LoggedEpisodes, keep_N: Bools) -> LoggedEpisodes:
    """Return the episodes marked True."""
    names = [f.name for f in dataclasses.fields(episodes) if f.name.endswith("_NT")]
    arrays = {name: getattr(episodes, name) for name in names}
    return dataclasses.replace(episodes, **{k: v[..., keep_N, :] for k, v in arrays.items() if v is not None})
