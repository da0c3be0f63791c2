"""The constructors: what each world is known for, computed exactly.

Renyi divergences and state values of finite MDPs against sums over all episodes, and noise per pair.
"""

import math

import numpy as np
import pytest
from references import reference_mdp as reference
from support.refusals import refuses
from support.small_mdps import SMALL, bare, policies, random_mdp

from envs import infinite_horizon
from envs.finite_mdp import FiniteMDP
from envs.logged_bandit import bandit
from envs.mdp_gym_env import FiniteMDPEnv
from envs.mdps import baird_behavior, baird_star, chain, combination_lock, garnet, grid_world


def always(world, action: int) -> np.ndarray:
    return np.tile(np.eye(world.actions)[action], (world.states, 1))


def uniform(world) -> np.ndarray:
    return np.full((world.states, world.actions), 1.0 / world.actions)


def test_chain_pays_one_per_step_at_its_end_and_a_lure_at_its_start():
    world = chain(length=4, slip=0.0, lure=0.25, horizon=10)
    assert world.value(always(world, 1)) == 7.0  # three steps to get there
    assert world.value(always(world, 0)) == 2.5
    assert chain(length=4, slip=1.0, lure=0.0, horizon=4).value(always(world, 0)) == 0.0


def test_default_grid_world_is_the_frozen_lake_of_gymnasium():
    gymnasium = pytest.importorskip("gymnasium")
    world, lake = grid_world(), gymnasium.make("FrozenLake-v1").unwrapped
    for s, a in np.ndindex(world.states, world.actions):
        if world.terminal_S[s]:
            continue
        law_S, reward = np.zeros(world.states), 0.0
        for probability, following, paid, terminated in lake.P[s][a]:
            law_S[following] += probability
            reward += probability * paid
            assert world.terminal_S[following] == terminated
        assert world.transition_SAS[s, a] == pytest.approx(law_S, abs=1e-15)
        assert world.mean_reward_SA[s, a] == pytest.approx(reward, abs=1e-15)
    assert world.start_S[0] == 1.0


def test_grid_world_without_slip_is_solved_by_walking():
    world = grid_world(layout=("SF", "HG"), slip=0.0, horizon=2)
    pi_SA = always(world, 2)
    pi_SA[1] = np.eye(4)[1]
    assert world.value(pi_SA) == 1.0
    assert world.value(always(world, 1)) == 0.0  # into the hole
    assert world.occupancy(always(world, 1))[1].sum() == 0.0  # where the episode ends


@pytest.mark.parametrize("layout", [("SF", "G"), ("SX",), ("FG",), ()])
def test_a_grid_layout_that_is_no_grid_is_refused(layout):
    with pytest.raises(ValueError, match="expected rows of equal length made of S, F, H and G, with an S"):
        grid_world(layout=layout)


def test_garnet_has_the_asked_branching_and_depends_on_its_seed_alone():
    world = garnet(states=9, actions=3, branching=4, seed=1)
    assert ((world.transition_SAS > 0).sum(axis=-1) == 4).all()
    assert np.array_equal(
        world.transition_SAS, garnet(states=9, actions=3, branching=4, seed=1).transition_SAS
    )
    assert not np.array_equal(world.reward_SA, garnet(states=9, actions=3, branching=4, seed=2).reward_SA)
    assert garnet(noise_std=0.5).noise == "normal"
    with pytest.raises(ValueError, match="branching is 5, expected 1 to the number of states, 4"):
        garnet(states=4, branching=5)


def test_combination_lock_opens_only_with_its_code():
    world = combination_lock(length=5, actions=3, horizon=5, seed=3)
    code_SA = np.where(world.transition_SAS[:, :, 0] == 0.0, 1.0, 0.0)
    code_SA[-1] = [1.0, 0.0, 0.0]  # the open lock is terminal: any law will do
    assert world.value(code_SA) == 1.0
    assert world.value(uniform(world)) == pytest.approx(3.0**-5, rel=1e-12)
    other = combination_lock(length=5, actions=3, horizon=5, seed=4)
    assert not np.array_equal(world.transition_SAS, other.transition_SAS)


def test_bairds_behavior_keeps_the_states_uniform_and_nothing_is_worth_anything():
    world = baird_star()
    assert world.occupancy(baird_behavior()) == pytest.approx(np.full((20, 7), 1 / 7), abs=1e-15)
    assert infinite_horizon.value(world, baird_behavior()) == 0.0


def test_bandit_values_are_mean_rewards():
    means = np.array([[0.1, 0.9], [0.5, 0.3]])
    world = bandit(arms=2, contexts=2, means=means)
    assert world.value(always(world, 0)) == pytest.approx(0.3, abs=1e-15)
    assert bandit(arms=2, contexts=2, means=means[0]).value(always(world, 1)) == pytest.approx(0.9)
    assert not np.array_equal(bandit(seed=0).reward_SA, bandit(seed=1).reward_SA)
    with pytest.raises(ValueError, match=r"means has shape \(3,\), expected \(2,\) or \(1, 2\)"):
        bandit(arms=2, means=(0.0, 0.5, 1.0))
    refuses("arms is 0", bandit, arms=0, error=ValueError)


EXACT = {"rel": 1e-12, "abs": 1e-12}


@pytest.mark.parametrize("name", SMALL)
def test_renyi_divergence_is_a_sum_over_all_episodes(name):
    world = SMALL[name]
    pi_SA, mu_SA = policies(world, seed=6), policies(world, seed=7)
    masses = [(e.mass(pi_SA), e.mass(mu_SA)) for e in reference.episodes(bare(world))]
    for order in (0.25, 0.5, 1.5, 2.0, 3.0):
        total = sum(pi**order * mu ** (1 - order) for pi, mu in masses)
        assert world.renyi(pi_SA, mu_SA, order) == pytest.approx(math.log(total) / (order - 1), **EXACT)


@pytest.mark.parametrize("name", ["terminal", "chain"])
def test_renyi_divergence_never_falls_in_its_order_and_joins_kl_chi2_and_the_largest_ratio(name):
    world = SMALL[name]
    pi, mu = policies(world, 4, seed=1), policies(world, 4, seed=2)
    found = [world.renyi(pi, mu, order) for order in (0.01, 0.5, 0.999, 1.0, 1.001, 2.0, 9.0, 1e4, math.inf)]
    assert (np.diff(found, axis=0) >= -1e-12).all()
    exact = world.divergence(pi, mu)
    assert found[3] == pytest.approx(exact.kl_pi_mu, **EXACT)
    assert np.mean([found[2], found[4]], axis=0) == pytest.approx(exact.kl_pi_mu, abs=1e-5)
    assert found[5] == pytest.approx(np.log1p(exact.chi2), **EXACT)
    assert found[7] == pytest.approx(exact.max_log_rho, rel=1e-2)
    assert found[8] == pytest.approx(exact.max_log_rho, **EXACT)


def test_renyi_divergence_keeps_its_digits_where_the_second_moment_overflows():
    world = FiniteMDP(transition_SAS=np.ones((1, 2, 1)), reward_SA=np.zeros((1, 2)), start_S=[1], horizon=400)
    pi, mu = np.array([[0.99, 0.01]]), np.array([[0.01, 0.99]])
    one = math.log(0.99**3 / 0.01**2 + 0.01**3 / 0.99**2) / 2
    assert world.renyi(pi, mu, 3.0) == pytest.approx(400 * one, rel=1e-12)
    assert 2 * 400 * one > 709


def test_renyi_divergence_without_support_is_refused_or_infinite_above_order_one_only():
    world = SMALL["chain"]
    pi_SA, mu_SA = np.full((3, 2), 0.5), np.full((3, 2), 0.5)
    mu_SA[1] = [1.0, 0.0]
    refuses("never takes action 1 in state 1", world.renyi, pi_SA, mu_SA, 2.0, error=ValueError)
    for order in (1.0, 2.0, 2.5, math.inf):
        assert world.renyi(pi_SA, mu_SA, order, unsupported="infinite") == math.inf
    assert 0 < world.renyi(pi_SA, mu_SA, 0.5) < math.inf
    assert np.isfinite(world.renyi(mu_SA, pi_SA, 2.5))
    unreached = random_mdp(0, transition_SAS=np.repeat(np.eye(3)[:, None], 2, 1), start_S=[1.0, 0.0, 0.0])
    off = np.array([[0.5, 0.5], [1.0, 0.0], [0.5, 0.5]])
    assert unreached.renyi(np.full((3, 2), 0.5), off, 2.5) == pytest.approx(0.0, abs=1e-12)
    refuses("order is 0, expected a number above 0", world.renyi, pi_SA, mu_SA, 0, error=ValueError)


@pytest.mark.parametrize("name", SMALL)
def test_state_values_are_the_returns_of_episodes_restarted_at_each_step(name):
    world = SMALL[name]
    pi = policies(world, 2, seed=5)
    value = world.state_value(pi)
    assert value.shape == (2, world.horizon + 1, world.states)
    assert not value[:, -1].any()
    for t, s in np.ndindex(world.horizon, world.states):
        later = [reference.action_value(bare(world), pi[1], t, s, a) for a in range(world.actions)]
        expected = 0.0 if world.terminal_S[s] else pi[1, s] @ later
        assert value[1, t, s] == pytest.approx(expected, **EXACT)
    assert value[:, 0] @ world.start_S == pytest.approx(world.value(pi), **EXACT)


def test_noise_per_pair_is_drawn_by_gymnasium_too():
    env = FiniteMDPEnv("bandit", arms=2, means=(1.0, 1.0), noise="normal", noise_std=[[0.0, 3.0]])
    found = {0: [], 1: []}
    for episode in range(200):
        env.reset(seed=episode)
        found[episode % 2].append(env.step(np.int64(episode % 2))[1])
    assert set(found[0]) == {1.0}
    # 100 draws: a chi-square deviation outside 2 to 4.2 has a chance below 1e-6.
    assert 2.0 < np.std(found[1]) < 4.2


def test_one_number_of_noise_is_a_table_of_equal_numbers():
    scalar, table = (random_mdp(3, noise="normal", noise_std=s) for s in (0.3, np.full((3, 2), 0.3)))
    pi, key = policies(scalar, 1), np.arange(1, dtype=np.uint64)
    start = np.zeros((1, 5), np.int64)
    first, second = (w.simulate(pi, start, 4, key, 1).reward_RBT for w in (scalar, table))
    assert np.array_equal(first, second)
    assert scalar.variance(pi) == table.variance(pi)


def test_a_wrong_table_of_noise_is_refused():
    for wrong, message in (
        (np.ones((2, 3)), r"noise_std has shape \(2, 3\), expected a number or one for each"),
        (np.full((3, 2), -1.0), "expected a finite number >= 0"),
        (np.full((3, 2), np.nan), "expected a finite number >= 0"),
    ):
        refuses(message, random_mdp, 0, noise="normal", noise_std=wrong, error=ValueError)
