"""Logged data sets and small worlds, against the exact values of the finite MDP.

Kernels beside libraries that compute the same: where one is not installed, its comparison is skipped.
"""

import dataclasses

import numpy as np
import pytest
from references.reference_libraries import COMPARISONS, missing
from support.refusals import refuses
from support.small_mdps import SMALL, policies

from analysis.experiments.offline.offline_iv import confounded
from analysis.kernels.mechanisms import tightrope
from analysis.worlds.offline_worlds import two_groups
from envs import infinite_horizon
from envs.logged_data import Counts, collect, covering, draw_counts, exact_model, expected_counts, skilled
from envs.mdps import garnet

KEYS = np.arange(3, dtype=np.uint64)
WORLD = SMALL["terminal"]


def test_a_log_replays_the_simulator_and_knows_where_each_step_led():
    mu = policies(WORLD, 3)
    log = collect(WORLD, mu[:, None], 400, KEYS)
    follows = log.mask_RBT[..., 1:]
    assert (log.state_RBT[..., 1:] == log.next_RBT[..., :-1])[follows].all()
    assert (log.going_RBT[..., :-1] == follows).all()
    # The last step of an episode of full length leads somewhere too.
    assert log.going_RBT[..., -1].any()
    mean = log.returns_to_go(WORLD.discount)[..., 0].mean(-1)
    error = np.sqrt(WORLD.variance(mu) / 400)
    assert (np.abs(mean - WORLD.value(mu)) < 4.5 * error).all()  # 3 tests, false alarm 2e-5


def test_quotas_of_a_mixture_are_exact_and_each_policy_plays_its_episodes():
    sure = np.eye(2)[np.array([[0, 0, 0], [1, 1, 1]])]
    log = collect(WORLD, np.broadcast_to(sure, (3, 2, 3, 2)), 40, KEYS, share_W=(0.25, 0.75))
    assert (log.source_RB == np.repeat([0, 1], [10, 30])).all()
    assert (log.action_RBT == log.source_RB[..., None])[log.mask_RBT].all()


@pytest.mark.parametrize("name", ["terminal", "random", "lock"])
def test_counts_have_the_expected_counts_as_their_mean(name):
    world = SMALL[name]
    mu = policies(world, 1)
    log = collect(world, mu[:, None], 20_000, np.array([5], np.uint64))
    got, wanted = log.counts(world.states, world.actions), expected_counts(world, mu, 20_000)
    for sampled, exact in ((got.visit_RSA, wanted.visit_RSA), (got.going_RSAS, wanted.going_RSAS)):
        # Visits of an episode are at most the horizon: a cautious standard error, some 50 cells.
        assert (np.abs(sampled - exact) <= 5 * world.horizon * np.sqrt(exact + 1)).all()
    seen = wanted.visit_RSA > 500
    assert np.abs(got.moves_RSAS - exact_model(world)[0])[seen].max() < 0.1


def test_expected_counts_give_back_the_model_and_pooling_adds_data():
    mu = policies(WORLD, 2)
    counts = expected_counts(WORLD, mu, [1.0, 3.0])
    seen = counts.seen_RSA
    moves, reward = exact_model(WORLD)
    np.testing.assert_allclose(
        counts.moves_RSAS[seen], np.broadcast_to(moves, counts.going_RSAS.shape)[seen], atol=1e-12
    )
    np.testing.assert_allclose(counts.reward_RSA[seen], np.broadcast_to(reward, seen.shape)[seen])
    both = counts + counts.scaled([1.0, 0.5])
    np.testing.assert_allclose(both.visit_RSA, counts.visit_RSA * np.array([2, 1.5])[:, None, None])
    np.testing.assert_allclose(both.moves_RSAS, counts.moves_RSAS)
    np.testing.assert_allclose(both.reward_RSA, counts.reward_RSA)


def test_drawn_counts_are_those_of_independent_steps():
    world = SMALL["normal"]
    law = np.full((world.states, world.actions), 1 / (world.states * world.actions))
    counts = draw_counts(world, law, 600, np.random.default_rng(0), cells=400)
    assert (counts.visit_RSA.sum((1, 2)) == 600).all()
    moves, reward = exact_model(world)
    np.testing.assert_allclose(counts.moves_RSAS.mean(0), moves, atol=0.012)  # 4.8 se
    away = (counts.reward_RSA - reward) * np.sqrt(counts.visit_RSA) / world.noise_std
    assert abs(away.std() - 1) < 0.07  # 2,400 normals: 4.8 se
    rewards = draw_counts(SMALL["bandit"], np.full((2, 3), 1 / 6), 60, np.random.default_rng(0), cells=1)
    whole = rewards.visit_RSA * rewards.reward_RSA
    np.testing.assert_allclose(whole, np.rint(whole), atol=1e-9)


def test_loggers_range_from_random_to_expert_and_cover_what_they_may():
    best = np.eye(2)[[0, 1, 1]]
    assert skilled(best, [0.0, 1.0]).tolist() == [[[0.5, 0.5]] * 3, best.tolist()]
    allowed = np.array([[True, False], [True, True], [True, True]])
    assert covering(np.full((3, 2), 0.5), allowed).tolist() == [[1, 0], [0.5, 0.5], [0.5, 0.5]]
    refuses("no allowed action", covering, np.eye(2)[[1, 1, 1]], allowed, error=ValueError)


def test_two_groups_differ_in_rewards_alone():
    one, two = two_groups(garnet(), gap=1.0, share=0.3, seed=0)
    assert 0.1 < (one.reward_SA != two.reward_SA).mean() < 0.5
    assert (one.transition_SAS == two.transition_SAS).all()


def test_a_confounded_world_is_the_plain_one_for_policies_that_do_not_see_the_cause():
    world = garnet(states=5, actions=3, discount=0.8)
    hidden = confounded(world)
    pi = policies(world)
    np.testing.assert_allclose(
        infinite_horizon.value(hidden.seen, np.repeat(pi, 4, axis=0)), infinite_horizon.value(world, pi)
    )
    # And its logger is not one of them: the mean reward of a logged action is not that of doing it.
    log, z = hidden.collect(2000, KEYS)
    naive = log.counts(5, 3).reward_RSA
    assert np.abs(naive - world.reward_SA).min() > 0.05
    assert set(np.unique(z)) == {0, 1}


def test_the_expert_of_the_tightrope_never_falls_and_nobody_recovers_without_it():
    world, expert = tightrope(horizon=9)
    assert world.value(expert) == pytest.approx(9)
    never = np.eye(4)[np.zeros(16, int)]
    assert world.value(never) == pytest.approx(1)


@pytest.mark.parametrize(
    "call",
    [lambda: collect(WORLD, policies(WORLD, 3), 5, KEYS),
     lambda: collect(WORLD, policies(WORLD, 3, 2), 5, KEYS, share_W=(0.9, 0.9)),
     lambda: confounded(garnet(), instrument=0.7, hidden=0.5),
     lambda: confounded(dataclasses.replace(SMALL["bernoulli"], bonus_S=None)),
     lambda: draw_counts(SMALL["bernoulli"], np.full((3, 2), 1 / 6), 5, np.random.default_rng(0), 1)],
)  # fmt: skip
def test_impossible_data_sets_are_refused(call):
    refuses(".", call, error=ValueError)


def test_counts_without_data_are_zero_and_not_nan():
    empty = Counts(np.zeros((1, 2, 2)), np.zeros((1, 2, 2, 2)), np.zeros((1, 2, 2)))
    assert not np.isnan((empty + empty).reward_RSA).any()
    assert not np.isnan(empty.moves_RSAS).any()


@pytest.mark.parametrize("each", COMPARISONS, ids=lambda each: f"{each.library}, {each.what}")
def test_the_kernel_has_the_librarys_value(each):
    if reason := missing(each):
        pytest.skip(reason)
    assert each.gap() <= each.most
