"""Exact answers of finite MDPs against the list of all episodes, closed forms and finite differences."""

import numpy as np
import pytest
from references import reference_mdp as reference
from support.refusals import refuses
from support.small_mdps import SMALL, bare, policies, random_mdp

from envs import infinite_horizon
from envs.finite_mdp import FiniteMDP

EXACT = {"rel": 1e-12, "abs": 1e-12}


@pytest.mark.parametrize("name", SMALL)
def test_value_variance_and_gradient_are_sums_over_all_episodes(name):
    world = SMALL[name]
    pi_SA = policies(world, seed=3)
    model = bare(world)
    assert world.value(pi_SA) == pytest.approx(reference.value(model, pi_SA), **EXACT)
    assert world.variance(pi_SA) == pytest.approx(reference.variance(model, pi_SA), **EXACT)
    assert world.gradient(pi_SA) == pytest.approx(reference.gradient(model, pi_SA), **EXACT)


@pytest.mark.parametrize("name", SMALL)
def test_occupancy_is_the_chance_to_be_in_a_state_before_the_end(name):
    world = SMALL[name]
    pi_SA = policies(world, seed=4)
    occupancy_TS = world.occupancy(pi_SA)
    assert occupancy_TS == pytest.approx(reference.occupancy(bare(world), pi_SA), **EXACT)
    discounted_S = world.discount ** np.arange(world.horizon) @ occupancy_TS
    by_occupancy = (discounted_S[:, None] * pi_SA * world.mean_reward_SA).sum()
    assert world.value(pi_SA) == pytest.approx(by_occupancy, **EXACT)


@pytest.mark.parametrize("name", ["terminal", "chain"])
def test_action_values_are_the_returns_of_restarted_episodes(name):
    world = SMALL[name]
    pi_SA = policies(world, seed=5)
    for (t, s, a), q in np.ndenumerate(world.q_value(pi_SA)):
        expected = 0.0 if world.terminal_S[s] else reference.action_value(bare(world), pi_SA, t, s, a)
        assert q == pytest.approx(expected, **EXACT)


@pytest.mark.parametrize("name", SMALL)
def test_divergence_is_a_sum_over_all_episodes(name):
    world = SMALL[name]
    pi_SA, mu_SA = policies(world, seed=6), policies(world, seed=7)
    exact = world.divergence(pi_SA, mu_SA)
    for field, expected in reference.divergence(bare(world), pi_SA, mu_SA).items():
        assert getattr(exact, field) == pytest.approx(expected, **EXACT), field
    assert exact.second_moment == exact.second_moment_prefix_T[-1]
    assert (np.diff(exact.second_moment_prefix_T) >= 0.0).all()
    assert exact.ess_max <= exact.ess_kish <= exact.ess_perplexity <= 1.0


def test_answers_keep_leading_axes_and_do_not_depend_on_neighbors():
    world = SMALL["terminal"]
    pi, mu = policies(world, 2, 5, seed=1), policies(world, 2, 5, seed=2)
    exact = world.divergence(pi, mu)
    assert world.value(pi).shape == (2, 5)
    assert world.q_value(pi).shape == (2, 5, 3, 3, 2)
    assert exact.second_moment_prefix_T.shape == (2, 5, 3)
    for i, j in np.ndindex(2, 5):
        assert world.value(pi)[i, j] == world.value(pi[i, j])
        assert world.variance(pi)[i, j] == world.variance(pi[i, j])
        assert np.array_equal(world.gradient(pi)[i, j], world.gradient(pi[i, j]))
        alone = world.divergence(pi[i, j], mu[i, j])
        for name, array in vars(exact).items():
            assert np.array_equal(array[i, j], getattr(alone, name)), name


def test_a_ratio_without_support_names_state_and_action_or_is_infinite():
    world = SMALL["chain"]
    pi_SA, mu_SA = np.full((3, 2), 0.5), np.full((3, 2), 0.5)
    mu_SA[1] = [1.0, 0.0]
    with pytest.raises(ValueError, match=r"never takes action 1 in state 1.*unsupported=.infinite."):
        world.divergence(pi_SA, mu_SA)
    exact = world.divergence(pi_SA, mu_SA, unsupported="infinite")
    assert np.isinf([exact.kl_pi_mu, exact.second_moment, exact.max_log_rho]).all()
    assert (exact.ess_kish, exact.ess_perplexity, exact.ess_max) == (0.0, 0.0, 0.0)
    reverse = world.divergence(mu_SA, pi_SA)  # pi without some of mu's actions is fine
    assert np.isfinite(reverse.second_moment)
    assert np.isinf(reverse.kl_mu_pi)


def test_support_matters_only_where_an_episode_can_get_to():
    world = FiniteMDP(
        transition_SAS=np.repeat(np.eye(2)[:, None, :], 2, axis=1), reward_SA=np.zeros((2, 2)),
        start_S=[1.0, 0.0], horizon=3,
    )  # fmt: skip
    pi_SA, mu_SA = np.full((2, 2), 0.5), np.array([[0.5, 0.5], [1.0, 0.0]])
    exact = world.divergence(pi_SA, mu_SA)
    assert (exact.kl_pi_mu, exact.second_moment, exact.max_log_rho) == (0.0, 1.0, 0.0)


@pytest.mark.parametrize("seed", [0, 4])
def test_long_horizons_approach_the_discounted_linear_system(seed):
    world = random_mdp(seed, horizon=400, terminal_S=[False, False, seed == 4], bonus_S=[0.1, 0.0, 1.0])
    pi = policies(world, 2)
    assert infinite_horizon.value(world, pi) == pytest.approx(world.value(pi), **EXACT)
    assert infinite_horizon.q_value(world, pi) == pytest.approx(world.q_value(pi)[:, 0], **EXACT)
    discounted_S = world.discount ** np.arange(world.horizon) @ world.occupancy(pi)
    assert infinite_horizon.occupancy(world, pi) == pytest.approx(discounted_S, **EXACT)
    assert infinite_horizon.gradient(world, pi) == pytest.approx(world.gradient(pi), **EXACT)
    with pytest.raises(ValueError, match="expected less than 1"):
        infinite_horizon.value(random_mdp(seed, discount=1.0), pi)


@pytest.mark.parametrize(
    "changes",
    [{"transition_SAS": np.ones((3, 2))}, {"transition_SAS": np.ones((3, 2, 3))},
     {"reward_SA": np.zeros((2, 2))}, {"reward_SA": np.full((3, 2), np.nan)},
     {"start_S": np.array([0.5, 0.6, 0.0])}, {"start_S": np.array([1.5, -0.5, 0.0])},
     {"terminal_S": [True, False, False]}, {"terminal_S": [True]}, {"noise": "gaussian"},
     {"noise": "bernoulli", "reward_SA": np.full((3, 2), 2.0)}, {"noise": "normal", "noise_std": -1.0},
     {"horizon": 0}, {"discount": 1.5}],
)  # fmt: skip
def test_a_wrong_definition_is_refused_with_what_was_given_and_expected(changes):
    refuses(".", random_mdp, 0, error=ValueError, **changes)


def test_wrong_policies_and_starts_are_refused():
    world, key_R = SMALL["terminal"], np.zeros(1, np.uint64)
    with pytest.raises(ValueError, match=r"pi has shape \(2, 2\), but this world has 3 states and 2 actions"):
        world.value(np.full((2, 2), 0.5))
    with pytest.raises(ValueError, match=r"pi\[1, 2\] .* sums to 3; .* not logits"):
        world.value(np.where(np.arange(12).reshape(2, 3, 2) >= 10, 1.5, 0.5))
    with pytest.raises(ValueError, match=r"pi\[0\] = \[nan nan\].*drop diverged replicas"):
        world.gradient(np.full((3, 2), np.nan))
    pi_RSA = np.full((1, 3, 2), 0.5)
    refuses("give one mu for each pi", world.divergence, pi_RSA, pi_RSA[0], error=ValueError)
    mu_RSA = np.repeat(pi_RSA, 2, axis=0)
    with pytest.raises(ValueError, match=r"pi has shape \(1, 3, 2\), but mu has \(2, 3, 2\)"):
        world.divergence(pi_RSA, mu_RSA)
    with pytest.raises(ValueError, match=r"1 policies, start_RN has shape \(2, 4\)"):
        world.simulate(pi_RSA, np.zeros((2, 4), np.int64), 1, key_R, 0)
    with pytest.raises(ValueError, match="without terminal states"):
        world.simulate(pi_RSA, np.full((1, 4), 2), 1, key_R, 0)
    with pytest.raises(ValueError, match="from 0 to 3, expected 0 to 2"):
        world.simulate(pi_RSA, np.arange(4)[None], 1, key_R, 0)


def test_a_world_cannot_be_changed_after_it_was_made():
    reward_SA = np.zeros((3, 2))
    world = random_mdp(0, reward_SA=reward_SA)
    reward_SA += 1.0
    assert not world.reward_SA.any()
    with pytest.raises(ValueError, match="read-only"):
        world.reward_SA[0, 0] = 1.0
