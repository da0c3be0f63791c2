"""Linear TD and LSTD, against expectations, fixed points and known thresholds."""

import numpy as np
import pytest
from support.offline_world import BEST, KEYS, MOVES, REWARD, WORLD
from support.small_mdps import policies

from envs import infinite_horizon
from envs.logged_data import expected_counts
from testbed.exact import value_learning
from testbed.offline import linear


def test_sampled_td_follows_its_expectation_and_explodes_where_that_does():
    feature = np.array([[1.0], [2.0]])
    step = np.array([[0.0, 1.0], [0.0, 1.0]])
    key = np.arange(50, dtype=np.uint64)

    def learned(steps, inner=1):
        return linear.sampled_td(
            feature, np.array([1.0, 0.0]), step, np.zeros(2), 0.9, key, steps=steps, every=steps,
            step_size=0.1, inner=inner, start_F=np.ones(1),
        )[-1]  # fmt: skip

    radius = value_learning.two_state(0.9).td_radius(0.1)
    np.testing.assert_allclose(learned(40), radius**40, rtol=1e-9)
    np.testing.assert_allclose(learned(6, 3), value_learning.two_state(0.9).target_radius(0.1, 3) ** 2)


def test_parallel_q_without_replay_finds_the_optimal_values():
    table = np.eye(8).reshape(4, 2, 8)
    weights = linear.parallel_q(
        WORLD, table, KEYS, players=32, steps=3000, every=3000, step_size=0.3, epsilon=0.7
    )
    assert np.abs(weights[-1].reshape(4, 4, 2) - BEST).max() < 0.15


def test_lstd_on_realizable_features_is_exact_in_the_limit_and_misalignment_says_how_far():
    pi, mu = policies(WORLD, 3, seed=1), policies(WORLD, 3, seed=2)
    truth = infinite_horizon.q_value(WORLD, pi)
    feature = linear.realizable_features(truth, 3, np.random.default_rng(0))
    data = expected_counts(WORLD, mu)
    np.testing.assert_allclose(linear.lstd_q(data, feature, pi, 0.8), truth, atol=1e-8)
    visit, prior = data.visit_RSA[0].ravel(), np.full(3, 0.3)  # a ridge counts against shares, not visits
    flat, ahead = feature[0].reshape(8, 3), MOVES[0].reshape(8, 4) @ (pi[0][..., None] * feature[0]).sum(1)
    system = flat.T @ np.diag(visit / visit.sum()) @ (flat - 0.8 * ahead) + np.diag(prior)
    weight = np.linalg.solve(system, flat.T @ (visit / visit.sum() * REWARD[0].ravel()))
    for many in (1.0, 100.0):
        shrunk = linear.lstd_q(expected_counts(WORLD, mu, many), feature, pi, 0.8, ridge=0.3)
        np.testing.assert_allclose(shrunk[0].ravel(), flat @ weight, atol=1e-12)
    # Incomplete: the Bellman image of another member of the class lies outside it.
    other = feature[..., 0]
    image = REWARD + 0.8 * np.einsum("rsat,rt->rsa", MOVES, (pi * other).sum(-1))
    left = image[0].ravel() - flat @ np.linalg.lstsq(flat, image[0].ravel(), rcond=None)[0]
    assert np.abs(left).max() > 0.05
    law = data.visit_RSA / data.visit_RSA.sum((-1, -2), keepdims=True)
    moves = np.repeat(MOVES, 3, axis=0)
    angle = linear.misalignment(feature, law, moves, pi, 0.8)
    full = linear.misalignment(np.broadcast_to(np.eye(8).reshape(4, 2, 8), (3, 4, 2, 8)), law, moves, pi, 0.8)
    np.testing.assert_allclose(full, 1.0)
    assert (angle > 1.0).all()
    np.testing.assert_allclose(linear.concentrability(law, law), 1.0)
    assert np.isinf(linear.concentrability(law, law * (np.arange(2) > 0))).all()


def test_misalignment_is_the_largest_blindness_of_the_class_to_its_residuals():
    pi, mu = policies(WORLD, 1, seed=1), policies(WORLD, 1, seed=2)
    feature = np.random.default_rng(0).normal(size=(1, 4, 2, 2))
    law = mu / 4
    residual = feature - 0.8 * np.einsum("rsat,rtk->rsak", MOVES, np.einsum("rta,rtak->rtk", pi, feature))
    root = np.sqrt(law[0]).reshape(8, 1)
    class_, seen = root * feature[0].reshape(8, 2), root * residual[0].reshape(8, 2)

    def cosine(angle):
        g = seen @ np.array([np.cos(angle), np.sin(angle)])
        return np.linalg.norm(class_ @ np.linalg.lstsq(class_, g, rcond=None)[0]) / np.linalg.norm(g)

    worst = min(cosine(a) for a in np.linspace(0, np.pi, 2001))
    assert linear.misalignment(feature, law, MOVES, pi, 0.8)[0] == pytest.approx(1 / worst, rel=1e-4)
