"""Replayed Q-learning and actor-critics, against exact values and fixed points."""

import dataclasses

import numpy as np
import pytest
from support.offline_world import BEST, KEYS, MOVES, REWARD, WORLD
from support.small_mdps import SMALL

from envs import infinite_horizon
from envs.finite_mdp import FiniteMDP
from envs.logged_data import collect
from testbed.errors import UserError
from testbed.offline import improvement, linear, replay_loops
from testbed.offline.replay_control import replay_actor_critic, replay_q


@pytest.mark.parametrize(
    "settings",
    [{}, {"updates": 2.0, "batch": 4}, {"target_every": 20.0}, {"model_share": 0.5}, {"on_policy": 1.0}],
    ids=lambda settings: "-".join(settings) or "plain",
)
def test_every_way_of_replaying_finds_the_optimal_values(settings):
    q, _ = replay_q(WORLD, KEYS, steps=20_000, every=20_000, epsilon=0.9, step_size=0.02, **settings)
    assert np.abs(q[:, -1] - BEST).max() < 0.35


def test_a_draw_at_a_boundary_is_the_action_above_it():
    assert replay_loops._index.py_func(np.array([0.0, 1.0]), 0.0) == 1  # no chance, never drawn
    assert replay_loops._index.py_func(np.array([0.25, 0.25, 0.5]), 0.5) == 2


def test_steps_of_a_trajectory_that_the_policy_would_not_take_are_not_drawn():
    """States 0 -> 1 -> end by action 0 and 0 -> 2 -> end by action 1; then 0 everywhere, which pays 1."""
    moves = np.zeros((4, 2, 4))
    moves[0, 0, 1] = moves[0, 1, 2] = 1.0
    moves[1:, :, 3] = 1.0
    paid = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    world = FiniteMDP(
        transition_SAS=moves, reward_SA=paid, start_S=np.eye(4)[0], horizon=2, discount=1.0,
        terminal_S=np.eye(4)[3] > 0,
    )  # fmt: skip
    both = np.zeros((1, 2, 4, 2))
    both[:, 0, 0, 0] = both[:, 1, 0, 1] = both[:, :, 1:, 0] = 1.0
    log = collect(world, both, 8, KEYS[:1])
    start = np.where(np.arange(8) % 2 == 0, 0.5, 0.0)[None]
    q, _ = replay_q(
        world, KEYS[:1], steps=1, every=1, updates=200.0, step_size=0.5, epsilon=1e-3, initial=start,
        offline=log, on_policy=50.0,
    )  # fmt: skip
    assert q[0, 0, 1, 0] > 0.9
    assert q[0, 0, 2, 0] == 0.5


def test_soft_values_are_those_of_the_soft_fixed_point():
    from testbed.offline.models import discrete_choice

    q, _ = replay_q(WORLD, KEYS, steps=20_000, every=20_000, temperature=0.5, step_size=0.02)
    _, value = discrete_choice(MOVES, REWARD / 0.5, 0.8)
    soft = REWARD + 0.8 * (MOVES @ (0.5 * value)[:, None, :, None])[..., 0]
    assert np.abs(q[:, -1] - soft).max() < 0.35


def test_a_cell_is_a_function_of_its_key_and_settings_alone():
    both, earned = replay_q(WORLD, KEYS, steps=300, every=100, updates=np.array([1.0, 2.0, 0.5, 1.0]))
    alone, _ = replay_q(WORLD, KEYS[2:3], steps=300, every=100, updates=0.5)
    assert (both[2] == alone[0]).all()
    assert (both[0] != both[3]).any()
    assert earned.shape == (4, 3)


def test_fewer_updates_than_steps_are_spread_out():
    # Step size 1 on rewards of a bandit: an update writes the reward down.
    world = dataclasses.replace(SMALL["bandit"], reward_SA=np.full((2, 3), 0.5), noise="none", discount=0.5)
    q, _ = replay_q(world, KEYS, steps=6, every=1, updates=1 / 3, step_size=1.0, epsilon=1.0, capacity=1)
    changed = (np.diff(q.reshape(4, 6, -1).sum(-1), prepend=0.0) != 0).sum(-1)
    assert (changed <= 2).all()


def test_an_episode_that_has_ended_bootstraps_nothing():
    world = FiniteMDP(
        transition_SAS=np.array([[[0.0, 1.0]], [[0.0, 1.0]]]), reward_SA=np.array([[1.0], [0.0]]),
        start_S=np.eye(2)[0], terminal_S=np.eye(2)[1] > 0, horizon=3, discount=0.5,
    )  # fmt: skip
    q, _ = replay_q(world, KEYS, steps=1, every=1, initial=8.0, step_size=1.0, epsilon=0.0)
    assert (q[:, 0, 0, 0] == 1.0).all()


def test_a_log_in_the_buffer_is_learned_from_before_anything_is_played():
    log = collect(WORLD, np.full((4, 1, 4, 2), 0.5), 400, KEYS)
    q, _ = replay_q(WORLD, KEYS, steps=10, every=10, updates=2000.0, offline=log, step_size=0.02)
    assert np.abs(q[:, -1] - BEST).max() < 0.35
    paid = FiniteMDP(
        transition_SAS=np.array([[[0.0, 1.0]], [[0.0, 1.0]]]), reward_SA=np.array([[0.5], [0.0]]),
        start_S=np.eye(2)[0], terminal_S=np.eye(2)[1] > 0, horizon=1, discount=0.5, noise="bernoulli",
    )  # fmt: skip
    log = collect(paid, np.ones((4, 1, 2, 1)), 400, KEYS)
    modeled = {"updates": 2000.0, "step_size": 0.02, "model_share": 1.0}
    q, _ = replay_q(paid, KEYS, steps=1, every=1, offline=log, **modeled)
    assert np.abs(q[:, 0, 0, 0] - 0.5).max() < 0.1  # the mean of 400, four errors of .025; alone 0 or 1
    with pytest.raises(UserError, match="raise capacity"):
        replay_q(WORLD, KEYS, steps=10, every=10, offline=log, capacity=10)


def test_a_reward_s_noise_has_the_spread_of_its_pair():
    world = SMALL["noise-per-pair"]  # one step of step size 1 writes a reward down
    q, _ = replay_q(world, np.arange(6000), steps=1, every=1, step_size=1.0, epsilon=1.0)
    for (s, a), std in np.ndenumerate(np.broadcast_to(world.noise_std, (world.states, world.actions))):
        paid = q[:, 0, s, a][q[:, 0, s, a] != 0]
        if len(paid):
            away = 5 * std / np.sqrt(len(paid))  # false alarm 6e-7 a pair
            assert paid.mean() == pytest.approx(world.reward_SA[s, a], abs=away + 1e-12)
            assert paid.std() == pytest.approx(std, abs=away + 1e-12)


def test_norms_and_errors_stay_within_their_bounds():
    q, _ = replay_q(WORLD, KEYS, steps=500, every=100, weight_bound=0.7, step_size=0.5)
    norm = np.sqrt((q**2).sum((-1, -2)))
    assert norm.max() == pytest.approx(0.7)
    one, _ = replay_q(WORLD, KEYS, steps=1, every=1, error_bound=0.01, step_size=1.0)
    assert np.abs(one).max() == pytest.approx(0.01)


def test_features_can_be_anything_that_a_table_is_not():
    mix = np.linalg.qr(np.random.default_rng(0).normal(size=(8, 8)))[0].reshape(4, 2, 8)
    table, _ = replay_q(WORLD, KEYS, steps=200, every=100, epsilon=1.0, step_size=0.1)
    mixed, _ = replay_q(WORLD, KEYS, steps=200, every=100, epsilon=1.0, step_size=0.1, feature_SAF=mix)
    np.testing.assert_allclose(table, mixed, atol=1e-9)


def test_a2c_learns_on_policy_and_old_bad_actions_repel_it_without_end():
    bandit = dataclasses.replace(SMALL["bandit"], discount=0.9)
    logits, value = replay_actor_critic(
        bandit, np.repeat(KEYS, 3), steps=4000, every=4000,
        replays=np.tile([0.0, 16.0, 16.0], 4), repel=np.tile([1.0, 1.0, 0.0], 4),
    )  # fmt: skip
    best = infinite_horizon.value(
        dataclasses.replace(bandit, terminal_S=None), improvement.softmax(logits[:, -1])
    )
    size = np.abs(logits[:, -1]).max((-1, -2)).reshape(4, 3).mean(0)
    assert size[1] > 3 * size[0]
    assert size[1] > 3 * size[2]
    assert value.shape == (12, 1, 2)
    assert best.reshape(4, 3)[:, 0].mean() > bandit.reward_SA.mean() / 0.1


def test_replays_of_actions_that_have_become_rare_can_be_dropped():
    plain, _ = replay_actor_critic(WORLD, KEYS, steps=300, every=300, replays=0.0)
    none, _ = replay_actor_critic(WORLD, KEYS, steps=300, every=300, replays=0.0, reach=1.0)
    assert (plain == none).all()
    fresh, _ = replay_actor_critic(WORLD, KEYS, steps=300, every=300, replays=4.0, reach=0.999)
    all_of_them, _ = replay_actor_critic(WORLD, KEYS, steps=300, every=300, replays=4.0)
    assert np.abs(fresh - all_of_them).max() > 0.1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: replay_q(WORLD, KEYS, steps=5, every=5, utd=2.0), "Unknown settings utd"),
        (lambda: replay_q(WORLD, KEYS, steps=5, every=5, updates=[1.0, 2.0]), "updates has shape"),
        (lambda: replay_q(WORLD, KEYS, steps=5, every=5, batch=0), "batch"),
        (lambda: replay_actor_critic(WORLD, KEYS, steps=5, every=6), "every"),
        (lambda: linear.realizable_features(REWARD, 99, np.random.default_rng(0)), "width"),
    ],
)
def test_impossible_settings_are_refused(call, message):
    with pytest.raises(UserError, match=message):
        call()
