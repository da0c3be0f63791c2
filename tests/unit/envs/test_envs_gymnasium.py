"""Every world as a gymnasium environment.

Worlds by name.
"""

import math

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from support.refusals import refuses

from envs import catalog
from envs.finite_mdp import FiniteMDP
from envs.registration import gym_id, register_all

FINITE = [name for name in catalog.worlds() if catalog.kind(name) == "finite-mdp"]


def play(env, seed: int, choose) -> tuple[list[tuple[int, float]], float]:
    """States with rewards of one episode, and its discounted return; `choose` maps a state to an action."""
    state, _ = env.reset(seed=seed)
    seen, total, over = [(int(state), 0.0)], 0.0, False
    while not over:
        weight = env.mdp.discount ** (len(seen) - 1)
        state, reward, over, truncated, _ = env.step(choose(state))
        assert not truncated
        seen.append((int(state), reward))
        total += weight * reward
    return seen, total


def test_ids_are_camel_case_and_registering_twice_is_harmless():
    assert gym_id("grid-world") == "testbed/GridWorld-v0"
    first = register_all()
    assert register_all() == first
    assert set(first) <= set(gymnasium.registry)
    missing = set(catalog.worlds()) - {"tree"}  # "tree" is a table over a token task, and that has its own id
    assert set(first) == {gym_id(name) for name in missing}


def test_a_module_prefix_registers_on_the_fly():
    env = gymnasium.make("envs.registration:testbed/Chain-v0", length=9)
    assert env.observation_space.n == 9


@pytest.mark.parametrize("name", FINITE)
def test_finite_worlds_pass_the_checker_of_gymnasium(name):
    check_env(gymnasium.make(gym_id(name)).unwrapped)


@pytest.mark.parametrize("name", FINITE)
def test_the_same_seed_gives_the_same_episode(name):
    env = gymnasium.make(gym_id(name)).unwrapped
    first, again, other = (play(env, seed, lambda state: state % env.mdp.actions)[0] for seed in (3, 3, 4))
    assert first == again
    if name not in ("chain", "combination-lock", "two-arm-bandit"):  # nearly or fully deterministic
        assert any(play(env, seed, lambda state: 0)[0] != first for seed in range(4, 12)), other


@pytest.mark.slow
@pytest.mark.parametrize("name", FINITE)
def test_the_simulated_mean_is_the_exact_value(name):
    # |z| < 5 with the exact variance: a right environment fails with p = 6e-7 each, were returns normal.
    env = gymnasium.make(gym_id(name)).unwrapped
    world, n, rng = env.mdp, 1_500, np.random.default_rng(0)
    pi_SA = rng.dirichlet(np.full(world.actions, 2.0), size=world.states)
    actions = np.arange(world.actions)
    mean = np.mean([play(env, seed, lambda s: rng.choice(actions, p=pi_SA[s]))[1] for seed in range(n)])
    standard_error = math.sqrt(max(float(world.variance(pi_SA)), 0.0) / n)
    assert abs(mean - world.value(pi_SA)) <= 5 * standard_error + 1e-12


@pytest.mark.parametrize("name", FINITE)
def test_the_compiled_mean_is_the_exact_value(name):
    # As above with 2e4 episodes: |z| < 5.
    from envs import kernels

    world, keys = catalog.make(name), np.array([11], dtype=np.uint64)
    pi_RSA = np.random.default_rng(1).dirichlet(np.full(world.actions, 2.0), size=(1, world.states))
    start_RN = world.start(kernels.uniforms(keys + np.uint64(1), 0, 20_000, 1)[..., 0])
    return_RB = world.simulate(pi_RSA, start_RN, 1, keys, 0).reward_RBT @ world.discount ** np.arange(
        world.horizon
    )
    standard_error = math.sqrt(max(float(world.variance(pi_RSA)[0]), 0.0) / return_RB.size)
    assert abs(return_RB.mean() - world.value(pi_RSA)[0]) <= 5 * standard_error + 1e-12


def test_a_step_needs_a_running_episode_and_a_known_action():
    env = gymnasium.make(gym_id("two-arm-bandit"), render_mode="ansi").unwrapped
    refuses("never started; call reset", env.step, 0, error=ValueError)
    env.reset(seed=0)
    refuses("action is 2, expected an integer from 0 to 1", env.step, 2, error=ValueError)
    assert env.step(1)[1:4] == (1.0, True, False)
    assert env.render() == "step 1: action 1, reward 1, state 0"
    refuses("call reset", env.step, 0, error=ValueError)


def test_walking_onto_the_goal_of_a_grid_that_does_not_slip_pays_one_and_ends():
    env = gymnasium.make("envs.registration:testbed/GridWorld-v0", slip=0.0).unwrapped
    path = iter([1, 1, 2, 2, 1, 2])  # FrozenLake's actions: 0 left, 1 down, 2 right, 3 up
    seen, total = play(env, 0, lambda _: np.int64(next(path)))
    assert [reward for _, reward in seen] == [0, 0, 0, 0, 0, 0, 1]
    assert total == 1


def test_every_world_of_the_issue_is_there():
    expected = {"chain", "grid-world", "garnet", "baird-star", "combination-lock", "bandit", "logged-bandit"}
    tasks = {"running-sum", "copy", "sorted", "length", "reasoning-gym", "jsonl", "three-skills"}
    tasks |= {"guess", "solver-checker", "hinted-sum", "styled-sum", "graded-sum"}
    assert expected <= set(FINITE)
    assert {name for name in catalog.worlds() if catalog.kind(name) == "token-task"} == tasks


@pytest.mark.parametrize("name", FINITE)
def test_the_name_alone_makes_a_finite_world(name):
    assert isinstance(catalog.make(name), FiniteMDP)


@pytest.mark.parametrize("name", catalog.worlds())
def test_every_world_is_described_in_one_sentence(name):
    line = catalog.describe(name)
    assert line.endswith(".")
    assert 20 < len(line) < 110


def test_worlds_are_sorted_and_cannot_be_changed_through_the_mapping():
    worlds = catalog.worlds()
    assert list(worlds) == sorted(worlds)
    with pytest.raises(TypeError):
        worlds["mine"] = FiniteMDP


def test_a_second_world_of_the_same_name_names_the_first():
    def chain(*, length: int = 2) -> FiniteMDP:
        raise AssertionError("never built")

    with pytest.raises(
        ValueError, match=r"'chain' of .*test_envs_gymnasium.* already declared by envs\.mdps\.chain"
    ):
        catalog.world("chain")(chain)
    constructor = catalog.worlds()["chain"]
    assert catalog.world("chain")(constructor) is constructor  # a reloaded module declares itself again


def test_arguments_must_be_keywords_with_defaults():
    def positional(length: int = 2) -> FiniteMDP:
        raise AssertionError("never built")

    def without_default(*, length: int) -> FiniteMDP:
        raise AssertionError("never built")

    for constructor in (positional, without_default):
        with pytest.raises(ValueError, match="'length' of world 'mine' must be keyword-only and have a"):
            catalog.world("mine")(constructor)
    assert "mine" not in catalog.worlds()


def test_unknown_names_and_arguments_are_answered_with_the_nearest():
    with pytest.raises(ValueError, match=r"unknown world 'gridworld'. Did you mean 'grid-world'\?"):
        catalog.make("gridworld")
    with pytest.raises(ValueError, match=r"'bandit' takes no argument 'arm'. Did you mean 'arms'\?"):
        catalog.make("bandit", arm=3)
    refuses("Known: baird-star, bandit", catalog.describe, "zzz", error=ValueError)
