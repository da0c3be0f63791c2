"""Improvement, sampling and imitation, against exact values and known distributions."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from support.offline_world import BEST, KEYS, MOVES, WORLD
from support.small_mdps import SMALL, policies

from analysis.kernels import imitation
from analysis.kernels.mechanisms import tightrope
from analysis.worlds.offline_worlds import random_worlds
from analysis.worlds.sampled_improvement import Arm, adapted_policy, learn
from envs import infinite_horizon
from envs.logged_data import Counts, collect, expected_counts
from testbed.offline import improvement, tabular_offline


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
    assert_allclose(mean, total / np.maximum(visit, 1), atol=1e-12)


@pytest.mark.parametrize("stale", [False, True])
def test_clipped_passes_are_gradient_ascent_on_the_surrogate_on_both_sides_of_the_clip(stale):
    rng = np.random.default_rng(0)
    logits, advantage = rng.normal(size=(2, 2, 3, 4))
    visits, rate = rng.integers(0, 4, (2, 3, 4)).astype(float), np.array([2.0, 8.0])
    theta, start = torch.tensor(logits), torch.tensor(logits + 0.3 * stale * advantage).softmax(-1)
    share = torch.tensor(visits / visits.sum((1, 2), keepdims=True))
    for _ in range(20):
        rho = theta.requires_grad_().softmax(-1) / start
        gain = torch.minimum(rho * torch.tensor(advantage), rho.clamp(0.8, 1.2) * torch.tensor(advantage))
        (slope,) = torch.autograd.grad((share * gain).sum(), theta)
        theta = (theta + torch.tensor(rate)[:, None, None] * slope).detach()
    assert (rho < 0.8).any()
    assert (rho > 1.2).any()
    found = improvement.clipped_passes(
        logits,
        visits,
        advantage,
        passes=20,
        step_size=rate,
        clip=0.2,
        old_RSA=start.numpy() if stale else None,
    )
    assert_allclose(found, theta, atol=1e-12)


def test_the_adapted_behavior_leans_to_what_is_missing_within_its_budget():
    pi, visits = np.array([[[0.5, 0.5]]]), np.array([[[8.0, 2.0]]])
    mu = adapted_policy(pi, visits, 0.1, 10.0)
    assert mu[0, 0, 1] == pytest.approx(1 / (1 + np.exp(-0.1 * 6)))
    assert tabular_offline.kl(adapted_policy(pi, visits, 100.0, 0.05), pi)[0, 0] <= 0.05
    assert_allclose(adapted_policy(pi, visits, 0.0, 0.05), pi)


def test_data_of_a_lag_are_drawn_by_the_policy_so_many_updates_ago():
    found, worlds = {}, random_worlds((1, 2))
    for lag in (0, 2, 9):
        drift: list[np.ndarray] = []
        learn(worlds, Arm(rate=5.0, lag=lag), iterations=5, batch=64, seed=0, drift=drift)
        found[lag] = np.array(drift)[:, 0]
    assert (found[0] == 0).all()
    assert (found[2][1:] > 0).all()
    # Up to the third batch all data are the first policy's.
    np.testing.assert_array_equal(found[2][:3], found[9][:3])
    assert (found[2][3] != found[9][3]).all()


def test_errors_of_cloning_compound_and_corrections_do_not():
    lost = {}
    for recoverable in (True, False):
        for horizon in (8, 32):
            world, expert = tightrope(horizon=horizon, recoverable=recoverable)
            lost[recoverable, horizon] = horizon - world.value(
                0.999 * expert + 0.001 * np.eye(expert.shape[-1])[0]
            )
    # To first order in the chance of an error T (T - 1) / 2 steps are lost, or T - 1.
    assert lost[False, 32] / lost[False, 8] == pytest.approx(32 * 31 / (8 * 7), rel=0.01)
    assert lost[True, 32] / lost[True, 8] == pytest.approx(31 / 7, rel=1e-6)


def counted(rng, states=3, actions=2, cells=2, unseen=()):
    """Return counts of random visits, some of which end."""
    visit = rng.integers(1, 6, (cells, states, actions)).astype(float)
    for place in unseen:
        visit[place] = 0.0
    going = visit[..., None] * rng.dirichlet(np.ones(states), (cells, states, actions)) * 0.8
    return Counts(visit, going, rng.normal(size=visit.shape) * (visit > 0))


def test_the_hybrid_critic_is_least_squares_round_by_round():
    rng = np.random.default_rng(0)
    feature, pi, data = rng.normal(size=(3, 2, 4)), rng.dirichlet(np.ones(2), (2, 3)), counted(rng)
    visit, gained, trust = rng.integers(0, 4, (2, 3, 2)).astype(float), rng.normal(size=(2, 3, 2)), (0.5, 3.0)
    for rounds in (1, 3):
        found = improvement.hybrid_critic(
            feature, pi, 0.8, offline=data, visit_RSA=visit, return_RSA=gained, trust=trust, rounds=rounds,
            ridge=0.2,
        )  # fmt: skip
        for r in range(2):
            w, phi = np.zeros(4), feature.reshape(6, 4)
            on, off = (n[r].ravel() / n[r].sum() for n in (visit, data.visit_RSA))
            off = trust[r] * off
            for _ in range(rounds):
                value = (pi[r] * (feature @ w)).sum(-1)
                aim = (data.reward_RSA[r] + 0.8 * data.moves_RSAS[r] @ value).ravel()
                rows = np.concatenate(
                    [np.sqrt(on)[:, None] * phi, np.sqrt(off)[:, None] * phi, np.sqrt(0.2) * np.eye(4)]
                )
                sides = np.concatenate([np.sqrt(on) * gained[r].ravel(), np.sqrt(off) * aim, np.zeros(4)])
                w = np.linalg.lstsq(rows, sides, rcond=None)[0]
            assert_allclose(found[r], feature @ w, rtol=1e-9)
    table = np.eye(8).reshape(4, 2, 8)
    pi, many = policies(WORLD, 1, seed=1), expected_counts(WORLD, policies(WORLD, 1, seed=2), 5.0)
    none = {"visit_RSA": np.zeros((1, 4, 2)), "return_RSA": np.zeros((1, 4, 2))}
    q = improvement.hybrid_critic(table, pi, 0.8, offline=many, trust=1.0, **none)
    assert_allclose(q, infinite_horizon.q_value(WORLD, pi), atol=1e-4)  # 50 rounds of .8


@pytest.mark.parametrize("passes", [0, 3])
def test_an_outer_iteration_is_fresh_returns_less_their_state_s_mean_and_a_step(passes):
    world, rates = SMALL["terminal"], np.array([0.5, 2.0])
    found = improvement.outer_loop(
        world, KEYS[:2], episodes=6, iterations=3, step_size=rates, passes=passes, clip=0.3
    )
    logits, wanted = np.zeros((2, 3, 2)), []
    for iteration in range(3):
        pi = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        wanted.append(world.value(pi))
        visit, mean = improvement.monte_carlo(world, pi, 6, KEYS[:2], step=iteration)
        advantage = np.zeros_like(mean)
        for r, s, a in np.argwhere(visit):
            here = visit[r, s] @ mean[r, s] / visit[r, s].sum()
            advantage[r, s, a] = mean[r, s, a] - here
        if passes:
            logits = improvement.clipped_passes(logits, visit, advantage, passes=3, step_size=rates, clip=0.3)
        else:
            logits = logits + rates[:, None, None] * advantage
    assert_allclose(found, wanted, rtol=1e-12)


def test_steps_of_an_iteration_draw_from_parts_of_their_own(monkeypatch):
    asked = []
    monkeypatch.setattr(
        improvement, "monte_carlo", lambda *_, step: asked.append(step) or (np.zeros((1, 3, 2)),) * 2
    )
    for episodes in (4096, 4097):
        improvement.outer_loop(SMALL["terminal"], KEYS[:1], episodes=episodes, iterations=3, step_size=1.0)
    assert asked == [0, 1, 2, 0, 2, 4]


def test_natural_steps_are_mirror_steps():
    logits, q = np.random.default_rng(0).normal(size=(2, 2, 3, 4))
    moved = improvement.natural_step(logits, q, [0.7, 2.0])
    assert_allclose(moved.max(-1), 0.0)
    mass = np.exp(logits + np.array([0.7, 2.0])[:, None, None] * q)
    assert_allclose(improvement.softmax(moved), mass / mass.sum(-1, keepdims=True))
    assert_allclose(improvement.softmax(logits + 1e4), np.exp(logits) / np.exp(logits).sum(-1)[..., None])


def test_parts_of_imitation_are_what_their_formulas_say():
    world, expert = WORLD, tabular_offline.greedy(BEST[None])[0]
    law = imitation.occupancy(world, np.stack([expert, policies(world, 1)[0]]))
    for pi, found in zip((expert, policies(world, 1)[0]), law, strict=True):
        at, wanted = world.start_S, np.zeros((4, 2))
        for t in range(400):
            wanted += 0.2 * 0.8**t * at[:, None] * pi
            at = np.einsum("s,sa,sat->t", at, pi, MOVES[0])
        assert_allclose(found, wanted, atol=1e-12)
    boosted = imitation.replay_weights(3, [0.0, 0.5, 1.0])
    assert_allclose(boosted, [[1 / 3] * 3, [1 / 7, 2 / 7, 4 / 7], [0, 0, 1]])
    one, two = np.array([0.2, 0.0]), np.array([0.0, 0.7])
    assert_allclose(imitation.discriminator_reward(one, two, 0.1), np.log([3.0, 0.1 / 0.8]))
    assert_allclose(imitation.discriminator_reward(one, two)[0], np.log(201))
