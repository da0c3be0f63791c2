"""Improvement, sampling and imitation, against exact values and known distributions."""

import numpy as np
import pytest
from scipy import optimize
from support.offline_world import BEST, KEYS, WORLD
from support.small_mdps import SMALL, policies

from analysis.worlds.sampled_improvement import adapted_policy
from envs import infinite_horizon
from envs.logged_data import collect, exact_model, expected_counts
from envs.mechanisms import lot_sizing, tightrope
from testbed.offline import imitation, improvement, tabular_offline


def test_returns_to_go_average_to_the_action_values():
    world = SMALL["terminal"]
    pi = policies(world, 1)
    visit, mean = improvement.monte_carlo(world, pi, 20_000, KEYS[:1], at_once=7000)
    early = expected_counts(world, pi, 20_000)
    np.testing.assert_allclose(visit, early.visit_RSA, atol=600)
    # A pair's mean return is its Q_t over the steps t at which it is visited.
    occupancy = world.occupancy(pi)[0][..., None] * pi[0]
    wanted = (occupancy * world.q_value(pi)[0]).sum(0) / np.maximum(occupancy.sum(0), 1e-12)
    np.testing.assert_allclose(mean[0][:2], wanted[:2], atol=0.05)


def test_the_hybrid_critic_is_regression_at_one_end_and_fqe_at_the_other():
    pi, mu = policies(WORLD, 2, seed=1), policies(WORLD, 2, seed=2)
    truth = infinite_horizon.q_value(WORLD, pi)
    table = np.eye(8).reshape(4, 2, 8)
    data = expected_counts(WORLD, mu, 5.0)
    q = improvement.hybrid_critic(
        table,
        pi,
        0.8,
        offline=data,
        visit_RSA=np.ones_like(pi),
        return_RSA=truth + 1.0,
        trust=[0.0, 1e6],
        rounds=200,
    )
    np.testing.assert_allclose(q[0], truth[0] + 1.0, atol=1e-5)
    np.testing.assert_allclose(q[1], truth[1], atol=1e-4)


def test_clipped_passes_ascend_the_surrogate_and_stop_at_the_clip():
    logits, advantage = np.zeros((1, 1, 2)), np.array([[[1.0, -1.0]]])
    visits = np.ones((1, 1, 2))

    def surrogate(x):
        pi = improvement.softmax(np.array([[[x, 0.0]]]))
        rho = pi / 0.5
        return float((visits / 2 * np.minimum(rho * advantage, np.clip(rho, 0.8, 1.2) * advantage)).sum())

    one = improvement.clipped_passes(logits, visits, advantage, passes=1, step_size=1e-3, clip=0.2)
    slope = optimize.approx_fprime([0.0], lambda x: surrogate(x[0]), 1e-6)[0]
    assert one[0, 0, 0] == pytest.approx(1e-3 * slope, rel=1e-4)
    many = improvement.clipped_passes(logits, visits, advantage, passes=500, step_size=0.05, clip=0.2)
    assert improvement.softmax(many)[0, 0, 0] * 2 == pytest.approx(1.2, abs=0.02)


def test_outer_steps_improve_with_samples_and_stall_when_they_are_too_large():
    value = improvement.outer_loop(
        WORLD, np.repeat(KEYS, 2), episodes=200, iterations=15, step_size=np.tile([0.3, 0.0], 4)
    )
    assert (value[-1, ::2] > value[0, ::2] + 0.1).all()
    np.testing.assert_allclose(value[:, 1::2], value[0, 1], atol=1e-12)
    clipped = improvement.outer_loop(WORLD, KEYS, episodes=200, iterations=15, step_size=4.0, passes=5)
    assert (clipped[-1] > clipped[0]).all()


def test_natural_steps_are_mirror_steps():
    pi = improvement.softmax(improvement.natural_step(np.log(policies(WORLD, 1)), BEST[None], [0.7]))
    np.testing.assert_allclose(pi, tabular_offline.awr(policies(WORLD, 1), BEST[None], 0.7))


def test_post_decision_states_pool_what_they_share():
    world, post = lot_sizing(capacity=4, largest_order=2)
    pi = policies(world, 1)
    paid = world.reward_SA
    counts = collect(world, pi[:, None], 30, KEYS[:1]).counts(*post.shape)
    pooled = improvement.pooled_by_post(counts, post, paid)
    for y in range(5):
        rows = pooled.moves_RSAS[0][post == y]
        np.testing.assert_allclose(rows, np.broadcast_to(rows[0], rows.shape))
    truth = exact_model(world)
    errors = [np.abs(c.moves_RSAS[0] - truth[0]).sum() for c in (counts, pooled)]
    assert errors[1] < errors[0]
    exact = improvement.pooled_by_post(expected_counts(world, pi), post, paid)
    np.testing.assert_allclose(exact.reward_RSA[0], truth[1], atol=1e-12)


# Sampling, imitation


def test_the_adapted_behavior_leans_to_what_is_missing_within_its_budget():
    pi, visits = np.array([[[0.5, 0.5]]]), np.array([[[8.0, 2.0]]])
    mu = adapted_policy(pi, visits, 0.1, 10.0)
    assert mu[0, 0, 1] == pytest.approx(1 / (1 + np.exp(-0.1 * 6)))
    assert tabular_offline.kl(adapted_policy(pi, visits, 100.0, 0.05), pi)[0, 0] <= 0.05
    np.testing.assert_allclose(adapted_policy(pi, visits, 0.0, 0.05), pi)


def test_boosted_replay_forgets_from_the_oldest_and_a_matched_occupancy_pays_nothing():
    law = imitation.occupancy(WORLD, tabular_offline.greedy(BEST[None]))
    assert law.sum() == pytest.approx(1)
    np.testing.assert_allclose(
        imitation.replay_weights(3, [0.0, 0.5, 1.0]), [[1 / 3] * 3, [1 / 7, 2 / 7, 4 / 7], [0, 0, 1]]
    )
    np.testing.assert_allclose(imitation.discriminator_reward(law, law), 0.0)


def test_errors_of_cloning_compound_and_corrections_do_not():
    lost = {}
    for recoverable in (True, False):
        for horizon in (8, 32):
            world, expert = tightrope(horizon=horizon, recoverable=recoverable)
            lost[recoverable, horizon] = horizon - world.value(imitation.erring(expert, 0.001))
    # To first order in the chance of an error T (T - 1) / 2 steps are lost, or T - 1.
    assert lost[False, 32] / lost[False, 8] == pytest.approx(32 * 31 / (8 * 7), rel=0.01)
    assert lost[True, 32] / lost[True, 8] == pytest.approx(31 / 7, rel=1e-6)


def test_on_policy_correction_learns_the_states_that_cloning_never_sees():
    world, expert = tightrope(contexts=16, horizon=32)
    cloned, corrected = imitation.corrected(
        world, expert, np.arange(40, dtype=np.uint64), rounds=4, episodes=1
    )
    np.testing.assert_allclose(cloned[0], corrected[0])
    assert corrected[-1].mean() < cloned[-1].mean() / 2
