"""Improvement, sampling and imitation, against exact values and known distributions."""

import numpy as np
import pytest
import torch
from support.offline_world import BEST, KEYS, WORLD
from support.small_mdps import SMALL, policies

from analysis.kernels.mechanisms import lot_sizing, tightrope
from analysis.worlds.sampled_improvement import adapted_policy
from envs import infinite_horizon
from envs.logged_data import collect, exact_model, expected_counts
from testbed.offline import imitation, improvement, tabular_offline


def test_returns_to_go_are_means_over_visits_of_parts_with_draws_of_their_own():
    world = SMALL["terminal"]
    pi = policies(world, 2)
    visit, total = np.zeros_like(pi), np.zeros_like(pi)
    for part, episodes in enumerate((30, 30, 7)):
        log = collect(world, pi[:, None], episodes, KEYS[:2], step=5 + part)
        for r, b, t in np.argwhere(log.mask_RBT):
            later = log.reward_RBT[r, b, t:][log.mask_RBT[r, b, t:]]
            place = r, log.state_RBT[r, b, t], log.action_RBT[r, b, t]
            visit[place] += 1
            total[place] += sum(world.discount**k * reward for k, reward in enumerate(later))
    found, mean = improvement.monte_carlo(world, pi, 67, KEYS[:2], step=5, at_once=30)
    np.testing.assert_array_equal(found, visit)
    np.testing.assert_allclose(mean, total / np.maximum(visit, 1), atol=1e-12)


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


def test_clipped_passes_are_gradient_ascent_on_the_surrogate_on_both_sides_of_the_clip():
    rng = np.random.default_rng(0)
    logits, advantage = rng.normal(size=(2, 2, 3, 4))
    visits, rate = rng.integers(0, 4, (2, 3, 4)).astype(float), np.array([2.0, 8.0])
    theta, start = torch.tensor(logits), torch.tensor(logits).softmax(-1)
    share = torch.tensor(visits / visits.sum((1, 2), keepdims=True))
    for _ in range(20):
        rho = theta.requires_grad_().softmax(-1) / start
        gain = torch.minimum(rho * torch.tensor(advantage), rho.clamp(0.8, 1.2) * torch.tensor(advantage))
        (slope,) = torch.autograd.grad((share * gain).sum(), theta)
        theta = (theta + torch.tensor(rate)[:, None, None] * slope).detach()
    assert (rho < 0.8).any()
    assert (rho > 1.2).any()
    found = improvement.clipped_passes(logits, visits, advantage, passes=20, step_size=rate, clip=0.2)
    np.testing.assert_allclose(found, theta, atol=1e-12)


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
