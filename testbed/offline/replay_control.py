"""Replay control: Q-learning (hard or soft) and actor-critic from a replay buffer, one cell per seed.

A cell plays the world, stores its steps and learns from draws of them; the loops are compiled.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from envs.arrays import Floats, Ints
from envs.finite_mdp import FiniteMDP
from envs.logged_data import Log
from testbed.errors import UserError
from testbed.offline.replay_loops import ACTOR_SETTINGS, Q_SETTINGS, actor_loop, q_loop


def replay_q(
    world: FiniteMDP,
    key_R: ArrayLike,
    *,
    steps: int,
    every: int,
    feature_SAF: Floats | None = None,
    batch: int = 1,
    capacity: int | None = None,
    offline: Log | None = None,
    initial: float | Floats = 0.0,
    **settings: ArrayLike,
) -> tuple[Floats, Floats]:
    """Q-learning from a replay buffer: Q [R, K, S, A] and reward earned [R, K], every `every` steps.

    What is earned after the last full period counts in it, so that all rewards add up.
    w += step_size mean_batch (y - phi w) phi, y = r + discount B(s'), B = max Q or the soft value of the
    target weights. feature_SAF None is a table; initial: weights at the start, a number or [R, F]; offline:
    steps in the buffer from the start; capacity None keeps everything.

    Settings, each a number or [R]: step_size; updates: UTD ratio, updates per environment step, fractions
    allowed; epsilon: exploration; temperature: 0 for max and greedy, else soft values tau logsumexp(Q/tau)
    and softmax actions (SAC with a table); target_every: updates between copies to the target, 0 for none;
    model_share: share of drawn steps with the current policy's action and an outcome from the empirical model
    (MAD-TD); on_policy: power p in the chance exp(p mean log pi(a|s)) of drawing a step, mean over its
    trajectory (ARB, 0 uniform); weight_bound: largest norm of the weights, error_bound: largest |TD error|
    used, 0 for none (FlashSAC); reset_every: updates after which weights and target start anew, 0 for never
    (Nikishin et al. 2022).

    Raises UserError for an unknown or negative setting, a part of an update in target_every or reset_every, a
    wrong shape or a batch below 1. Source: Lin (1992) for replay; Watkins & Dayan (1992) for the target;
    settings name their sources in parentheses.
    """
    key = np.atleast_1d(np.asarray(key_R, np.uint64))
    hyper_RK = _settings(Q_SETTINGS, settings, len(key))
    if batch < 1 or not 1 <= every <= steps:
        raise UserError(f"batch {batch}, every {every}: expected batch >= 1 and every <= steps.")
    pairs, shape = world.states * world.actions, (world.states, world.actions)
    table = feature_SAF is None
    packed = (np.arange(pairs)[:, None], np.ones((pairs, 1)))
    feature_SAF = np.eye(pairs).reshape(*shape, pairs) if feature_SAF is None else feature_SAF
    if feature_SAF.shape[:2] != shape:
        raise UserError(f"feature_SAF has shape {feature_SAF.shape}, expected {(*shape, 'F')}.")
    weight_RF = np.array(np.broadcast_to(initial, (len(key), feature_SAF.shape[-1])), np.float64)
    model_RXK = np.zeros((len(key), pairs, world.tables.next_XK.shape[1] + 1), np.int64)
    model_reward_RX = np.zeros((len(key), pairs))
    buffer = _buffer(world, len(key), steps, capacity, offline)
    if offline is not None:
        _prefill_model(world, offline, model_RXK, model_reward_RX)
    found_RKF, earned_RK = q_loop(
        world.tables, *buffer, hyper_RK, *(packed if table else _packed(feature_SAF.reshape(pairs, -1))),
        weight_RF, model_RXK, model_reward_RX, key, steps, every, batch,
    )  # fmt: skip
    if table and np.isfinite(found_RKF).all():  # the product below, quickly
        return found_RKF.reshape(*found_RKF.shape[:2], *shape), earned_RK
    return np.einsum("rek,sak->resa", found_RKF, feature_SAF), earned_RK


def replay_actor_critic(
    world: FiniteMDP,
    key_R: ArrayLike,
    *,
    steps: int,
    every: int,
    capacity: int | None = None,
    **settings: ArrayLike,
) -> tuple[Floats, Floats]:
    """A2C of one step with replay: logits [R, K, S, A] and values [R, K, S], K = steps // every.

    delta = r + discount V(s') - V(s); V(s) += critic_rate delta; logits(s) += actor_rate delta (e_a - pi(s)),
    for the fresh step and for `replays` drawn ones (fractions allowed), without importance weights. ERC's two
    conditions replace them: repel, the factor on negative advantages of replayed steps (1 plain, 0 none), and
    reach: replayed steps are dropped if their action now has less than this probability (0 keeps all).
    Settings: numbers or [R]. Source: ERC (Kobayashi 2024). Raises UserError as `replay_q` does.
    """
    key = np.atleast_1d(np.asarray(key_R, np.uint64))
    if not 1 <= every <= steps:
        raise UserError(f"every is {every}, expected 1 to steps = {steps}.")
    hyper_RK = _settings(ACTOR_SETTINGS, settings, len(key))
    found: tuple[Floats, Floats] = actor_loop(
        world.tables, capacity or steps, hyper_RK, world.states, world.actions, key, steps, every
    )
    return found


def _settings(defaults: dict[str, float], given: dict[str, ArrayLike], cells: int) -> Floats:
    """Settings as one row per cell, in the order of the defaults."""
    if unknown := sorted(set(given) - set(defaults)):
        raise UserError(f"Unknown settings {', '.join(unknown)}; known: {', '.join(defaults)}.")
    hyper_RK = np.empty((cells, len(defaults)))
    for d, (name, default) in enumerate(defaults.items()):
        values = np.asarray(given.get(name, default), np.float64)
        if values.shape not in ((), (cells,)) or not (values >= 0).all():
            raise UserError(f"{name} has shape {values.shape}, expected a number >= 0, or {cells} of them.")
        if name in ("epsilon", "model_share") and (values > 1).any():
            raise UserError(f"{name} is {values.max():g}, expected a share from 0 to 1.")
        if name in ("target_every", "reset_every") and (wrong := values[values % 1 != 0]).size:
            raise UserError(f"{name} is {wrong[0]:g}, expected a whole number of updates, or 0 for never.")
        hyper_RK[:, d] = values
    return hyper_RK


def _packed(feature_XF: Floats) -> tuple[Ints, Floats]:
    """Indices and values of the nonzero features of each row, padded with index 0 and value 0."""
    used_XF = feature_XF != 0
    index_XM = np.argsort(~used_XF, axis=-1, kind="stable")[:, : max(1, int(used_XF.sum(-1).max()))]
    return index_XM.astype(np.int64), np.ascontiguousarray(np.take_along_axis(feature_XF, index_XM, -1))


def _buffer(
    world: FiniteMDP, cells: int, steps: int, capacity: int | None, offline: Log | None
) -> tuple[NDArray[np.generic], ...]:
    """Pair, reward, next state, goes on, last of its episode, [R, C] each, and their number, [R]."""
    before = 0 if offline is None else int(offline.mask_RBT.sum((-1, -2)).max())
    size = capacity or steps + before
    if before > size:
        raise UserError(f"The log has {before} steps, but the buffer holds {size}; raise capacity.")
    shape, filled_R = (cells, size), np.zeros(cells, np.int64)
    kinds = (np.int64, np.float64, np.int64, np.bool_, np.bool_)
    buffer = tuple(np.zeros(shape, kind) for kind in kinds)
    if offline is not None:
        if len(offline.state_RBT) != cells:
            raise UserError(
                f"The log has {len(offline.state_RBT)} cells, expected one for each key: {cells}."
            )
        ends_RBT = offline.mask_RBT & ~np.pad(offline.mask_RBT[..., 1:], ((0, 0), (0, 0), (0, 1)))
        pair_RBT = offline.state_RBT * world.actions + offline.action_RBT
        logged = (pair_RBT, offline.reward_RBT, offline.next_RBT, offline.going_RBT, ends_RBT)
        for r, mask_BT in enumerate(offline.mask_RBT):
            filled_R[r] = mask_BT.sum()
            for stored_RK, given_RBT in zip(buffer, logged, strict=True):
                stored_RK[r, : filled_R[r]] = given_RBT[r][mask_BT]
    return *buffer, filled_R


def _prefill_model(world: FiniteMDP, offline: Log, model_RXK: Ints, model_reward_RX: Floats) -> None:
    counts = offline.counts(world.states, world.actions)
    cells, pairs, ended = len(model_RXK), model_RXK.shape[1], model_RXK.shape[2] - 1
    going_RXS = counts.going_RSAS.reshape(cells, pairs, -1)
    place_RXK = np.broadcast_to(world.tables.next_XK, (cells, pairs, ended))
    listed_XK = np.arange(ended) < world.tables.count_X[:, None]
    model_RXK[..., :ended] = np.take_along_axis(going_RXS, place_RXK, -1) * listed_XK
    visit_RX = counts.visit_RSA.reshape(cells, pairs)
    model_RXK[..., ended] = np.rint(visit_RX - going_RXS.sum(-1))
    model_reward_RX += visit_RX * counts.reward_RSA.reshape(cells, pairs)
