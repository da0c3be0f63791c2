"""Finite MDPs: the variances of weighted returns agree with the list of all episodes."""

import numpy as np
import pytest
from references import reference_mdp as reference
from support.small_mdps import LISTED, SMALL, bare, pair, policies, random_mdp

from envs.finite_mdp import FiniteMDP
from testbed.errors import UserError
from testbed.exact import mdp, ratios_dice


def q_hat(world, seed=0):
    return np.random.default_rng(seed).normal(size=(world.horizon, world.states, world.actions))


def listed_moments(world, pi, mu, estimate):
    """Mean and second moment of estimate(steps, ratios, rewards) over the reference's list, no noise."""
    model = bare(world)
    mean = square = 0.0
    for episode in reference.episodes(model):
        mass = episode.mass(mu)
        if mass == 0:
            continue
        rewards = [model.reward[s, a] + model.bonus[t] for s, a, t in episode.steps]
        value = estimate(episode.steps, episode.ratios(pi, mu), rewards)
        mean, square = mean + mass * value, square + mass * value**2
    return mean, square - mean**2


@pytest.mark.parametrize("name", ["random", "terminal", "chain", "grid", "lock"])
def test_variances_of_is_and_pdis_are_those_over_the_list_of_all_episodes(name):
    world = SMALL[name]
    pi, mu = pair(world)
    discounts = world.discount ** np.arange(world.horizon)

    def sequence(steps, ratios, rewards):
        return ratios[-1] * sum(d * r for d, r in zip(discounts, rewards, strict=False))

    def per_decision(steps, ratios, rewards):
        return sum(d * w * r for d, w, r in zip(discounts, ratios, rewards, strict=False))

    value = pytest.approx(float(world.value(pi)))
    found = listed_moments(world, pi, mu, sequence)
    assert found[0] == value
    assert mdp.importance_variance(world, pi, mu) == pytest.approx(found[1], rel=1e-11)
    found = listed_moments(world, pi, mu, per_decision)
    assert found[0] == value
    assert mdp.per_decision_variance(world, pi, mu) == pytest.approx(found[1], rel=1e-11)


@pytest.mark.parametrize("name", ["random", "terminal", "grid"])
def test_the_doubly_robust_recursion_is_the_variance_over_the_list_of_all_episodes(name):
    world = SMALL[name]
    pi, mu = pair(world)
    model = q_hat(world)
    v_hat = (pi * model).sum(-1)

    def recursive(steps, ratios, rewards):
        total = 0.0  # X_t = V + rho (r + discount X_{t+1} - Q), from the end
        for t in reversed(range(len(steps))):
            s, a, _ = steps[t]
            rho = pi[s, a] / mu[s, a]
            total = v_hat[t, s] + rho * (rewards[t] + world.discount * total - model[t, s, a])
        return total

    mean, variance = listed_moments(world, pi, mu, recursive)
    assert mean == pytest.approx(float(world.value(pi)))
    assert mdp.doubly_robust_variance(world, pi, mu, model) == pytest.approx(variance, rel=1e-11)


@pytest.mark.parametrize("name", LISTED)
def test_the_enumeration_is_a_law_whose_estimates_have_the_recursions_moments(name):
    world = SMALL[name]
    pi, mu = pair(world)
    model = q_hat(world, 1)
    table = mdp.enumerate_episodes(world, mu)
    assert table.probability_N.sum() == pytest.approx(1.0)
    found = mdp.estimates(table, pi, mu, world.discount, model)
    wanted = (
        (found.importance_N, mdp.importance_variance(world, pi, mu)),
        (found.per_decision_N, mdp.per_decision_variance(world, pi, mu)),
        (found.doubly_robust_N, mdp.doubly_robust_variance(world, pi, mu, model)),
    )
    for estimate_N, variance in wanted:
        assert table.mean(estimate_N) == pytest.approx(float(world.value(pi)), abs=1e-12)
        assert table.variance(estimate_N) == pytest.approx(variance, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", sorted(SMALL))
def test_on_policy_every_weighted_variance_is_the_variance_of_the_return(name):
    world = SMALL[name]
    mu = policies(world, seed=2)
    variance = float(world.variance(mu))
    assert mdp.importance_variance(world, mu, mu) == pytest.approx(variance, abs=1e-12)
    assert mdp.per_decision_variance(world, mu, mu) == pytest.approx(variance, abs=1e-12)
    ones = np.ones((world.horizon, world.states, world.actions))
    assert mdp.additive_moments(world, mu, ones) == pytest.approx(
        (float(world.value(mu)), variance), abs=1e-12
    )


def test_per_decision_weighting_can_be_twenty_thousand_times_worse_than_trajectory_weighting():
    # "two steps" of docs/theory/small-worlds.md; the second step is a state of its own.
    world = FiniteMDP(
        transition_SAS=np.array([[[0, 1], [0, 1]], [[0, 1], [0, 1]]], dtype=float),
        reward_SA=np.array([[-1.0, -1.0], [1.0, -1.0]]),
        start_S=np.array([1.0, 0.0]),
        horizon=2,
    )
    pi, mu = np.array([[0.99, 0.01]] * 2), np.array([[0.1, 0.9]] * 2)
    assert float(world.value(pi)) == pytest.approx(-1 / 50)
    assert mdp.importance_variance(world, pi, mu) == pytest.approx(8011 / 2025000)
    assert mdp.per_decision_variance(world, pi, mu) == pytest.approx(70188373 / 810000)


def test_the_right_model_leaves_no_variance_in_a_deterministic_world_and_noise_stays_noise():
    rng = np.random.default_rng(3)
    moves = {"transition_SAS": np.eye(3)[rng.integers(3, size=(3, 2))], "start_S": np.eye(3)[0]}
    world = random_mdp(3, **moves)
    pi, mu = pair(world)
    assert mdp.doubly_robust_variance(world, pi, mu, world.q_value(pi)) == pytest.approx(0.0, abs=1e-14)
    noisy = random_mdp(3, noise="normal", noise_std=0.5, **moves)
    # Only rho^2-weighted noise is left: 0.25 sum_t discount^(2t) E w_{0:t}^2.
    moment = noisy.divergence(pi, mu).second_moment_prefix_T
    wanted = 0.25 * (0.9 ** (2 * np.arange(3)) @ moment)
    assert mdp.doubly_robust_variance(noisy, pi, mu, noisy.q_value(pi)) == pytest.approx(wanted)


@pytest.mark.parametrize("name", ["random", "terminal", "bernoulli"])
def test_marginalized_weights_are_unbiased_and_are_the_conditional_means_of_the_prefix_ratio(name):
    world = SMALL[name]
    pi, mu = pair(world)
    weight = ratios_dice.marginal_weights(world, pi, mu)
    mean, variance = mdp.additive_moments(world, mu, weight)
    assert mean == pytest.approx(float(world.value(pi)))
    table = mdp.enumerate_episodes(world, mu)
    rho = np.where(
        table.mask_NT, pi[table.state_NT, table.action_NT] / mu[table.state_NT, table.action_NT], 1
    )
    prefix = np.cumprod(rho, axis=-1)
    time = np.arange(world.horizon)
    here = np.where(table.mask_NT, weight[time, table.state_NT, table.action_NT], 0.0)
    total = (here * table.reward_NT) @ world.discount**time
    assert table.variance(total) == pytest.approx(variance)
    for t, s, a in np.ndindex(world.horizon, world.states, world.actions):
        at = table.mask_NT[:, t] & (table.state_NT[:, t] == s) & (table.action_NT[:, t] == a)
        if at.any():
            chance = table.probability_N[at]
            assert weight[t, s, a] == pytest.approx(chance @ prefix[at, t] / chance.sum())


def test_the_growth_rate_of_the_second_moment_is_the_matrix_radius():
    world = random_mdp(0, horizon=400)
    pi, mu = pair(world)
    step, first = mdp.squared_ratio_matrix(world, pi, mu)
    assert first == pytest.approx((pi**2 / mu).sum(-1))
    moment = world.divergence(pi, mu).second_moment_prefix_T
    radius = np.abs(np.linalg.eigvals(step)).max()
    assert np.log(moment[-1] / moment[-101]) / 100 == pytest.approx(np.log(radius), abs=1e-9)


def test_what_cannot_be_weighted_or_written_down_is_refused():
    world = SMALL["random"]
    pi, mu = pair(world)
    hole = np.array([[1.0, 0.0], *mu[1:]])
    with pytest.raises(UserError, match="never takes action 1 in state 0"):
        mdp.importance_variance(world, pi, hole)
    with pytest.raises(UserError, match="mu has no mass at index"):
        ratios_dice.marginal_weights(world, pi, hole)
    with pytest.raises(UserError, match="exceed 10"):
        mdp.enumerate_episodes(world, mu, most=10)
    with pytest.raises(UserError, match="normal noise"):
        mdp.enumerate_episodes(SMALL["normal"], mu)
