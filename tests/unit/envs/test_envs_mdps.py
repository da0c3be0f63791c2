"""The constructors: what each world is known for, computed exactly."""

import numpy as np
import pytest

from envs import infinite_horizon
from envs.bandits import bandit
from envs.mdps import (
    BAIRD_FEATURES,
    baird_behavior,
    baird_star,
    chain,
    combination_lock,
    garnet,
    grid_world,
)


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


def td_growth(discount: float) -> float:
    """Largest real part of the expected TD update's eigenvalues; states uniform, target always solid."""
    world = baird_star(discount=discount)
    step_SS = np.einsum("sa,sat->st", always(world, 1), world.transition_SAS)
    difference = discount * step_SS @ BAIRD_FEATURES - BAIRD_FEATURES
    return float(np.linalg.eigvals(BAIRD_FEATURES.T @ difference / 7.0).real.max())


def test_linear_td_diverges_on_bairds_star_exactly_above_fifteen_seventeenths():
    # docs/theory/value-learning.md
    assert td_growth(0.99) == pytest.approx(0.23925, abs=5e-6)
    assert td_growth(15 / 17 + 1e-3) > 1e-5
    assert td_growth(15 / 17 - 1e-3) < 1e-9  # 0: a direction that no feature sees


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
    with pytest.raises(ValueError, match="arms is 0"):
        bandit(arms=0)
