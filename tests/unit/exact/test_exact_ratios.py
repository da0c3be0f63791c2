"""Ratios of occupancies, by DICE, LSTD and abstract chains, agree with the list of all episodes."""

import numpy as np
import pytest
from support.small_mdps import LISTED, SMALL, pair, policies, random_mdp

from envs import infinite_horizon
from testbed.errors import UserError
from testbed.exact import fixed_points, mdp, ratios_dice


def test_dice_and_lstdq_agree_on_the_occupancy_itself_and_on_counts():
    world = random_mdp(5)
    pi, _ = pair(world)
    data = np.random.default_rng(1).dirichlet(np.ones(6)).reshape(3, 2)
    system = ratios_dice.linear_system(
        ratios_dice.joint_distribution(world, data), pi, world.start_S, world.discount
    )
    reward = world.mean_reward_SA.ravel()
    truth = (1 - world.discount) * float(infinite_horizon.value(world, pi))
    assert system.dice_value(reward) == pytest.approx(truth)
    assert system.lstd_value(reward) == pytest.approx(truth)
    assert system.ratio().reshape(3, 2) == pytest.approx(ratios_dice.occupancy_ratio(world, pi, data))
    counts = np.random.default_rng(2).integers(1, 9, size=(3, 2, 3))
    counted = ratios_dice.linear_system(counts, pi, world.start_S, world.discount)
    assert counted.dice_value(reward) == pytest.approx(counted.lstd_value(reward), rel=1e-12)
    assert counted.data_X @ counted.ratio() == pytest.approx(1.0)


def test_on_policy_occupancy_data_has_ratio_one():
    world = random_mdp(6)
    mu = policies(world)
    data = (1 - world.discount) * infinite_horizon.occupancy(world, mu)[:, None] * mu
    system = ratios_dice.linear_system(
        ratios_dice.joint_distribution(world, data), mu, world.start_S, world.discount
    )
    assert system.ratio() == pytest.approx(np.ones(6))


def test_nothing_is_added_after_a_terminal_state():
    world = random_mdp(1, terminal_S=[False, False, True], bonus_S=[0.0, -0.5, 2.0])
    pi, _ = pair(world)
    # The log goes on after the end, as after an automatic reset, and even pays there.
    law, terminal = ratios_dice.joint_distribution(world, np.full((3, 2), 1 / 6)), world.tables.terminal_S
    reward = np.where(terminal[:, None], 7.0, world.mean_reward_SA)
    truth = float(infinite_horizon.value(world, pi))
    system = ratios_dice.linear_system(law, pi, world.start_S, world.discount, terminal)
    assert system.dice_value(reward.ravel()) == pytest.approx(0.1 * truth)
    fitted = fixed_points.fitted_q(law, reward, pi, world.discount, terminal).fixed_point()
    assert fitted[:4] == pytest.approx(infinite_horizon.q_value(world, pi).ravel()[:4])


def test_ratio_systems_without_data_or_discount_are_refused():
    world = random_mdp(5)
    pi, _ = pair(world)
    law = ratios_dice.joint_distribution(world, np.full((3, 2), 1 / 6))
    with pytest.raises(UserError, match="expected 0 <= discount < 1"):
        ratios_dice.linear_system(law, pi, world.start_S, 1.0)
    law[1, 0] = 0
    with pytest.raises(UserError, match="hold no action 0 in state 1"):
        ratios_dice.linear_system(law, pi, world.start_S, 0.9)


@pytest.mark.parametrize("name", LISTED)
def test_an_abstract_chain_from_discounted_counts_has_the_value_of_the_policy(name):
    world = SMALL[name]
    pi = policies(world, seed=1)
    for abstraction in (np.zeros(world.states, dtype=int), np.arange(world.states) // 2):
        found = ratios_dice.abstract_chain_value(world, pi, abstraction)
        assert found == pytest.approx(float(world.value(pi)), abs=1e-12)


def test_the_chains_counts_are_means_of_importance_weighted_counts_and_plain_ones_mislead():
    world = SMALL["random"]
    pi, mu = pair(world)
    table = mdp.enumerate_episodes(world, mu)
    prefix = np.cumprod(pi[table.state_NT, table.action_NT] / mu[table.state_NT, table.action_NT], axis=-1)
    before = np.hstack([np.ones((len(prefix), 1)), prefix[:, :-1]])
    visits = [[table.mean(before[:, t] * (table.state_NT[:, t] == s)) for s in range(3)] for t in range(3)]
    assert np.array(visits) == pytest.approx(world.occupancy(pi))
    wrong = ratios_dice.abstract_chain_value(world, pi, np.array([0, 0, 1]), discounted_counts=False)
    assert abs(wrong - float(world.value(pi))) > 0.05


@pytest.mark.parametrize("name", ["random", "terminal"])
def test_the_abstract_chain_is_what_weighted_episodes_count(name):
    world, label_S = SMALL[name], np.array([0, 1, 0])
    pi, mu = pair(world)
    table = mdp.enumerate_episodes(world, mu)
    visits, moves, earned, first = np.zeros(2), np.zeros((2, 2)), np.zeros(2), np.zeros(2)
    for chance, state, action, reward, mask in zip(*vars(table).values(), strict=True):
        first[label_S[state[0]]] += chance
        weight = chance
        for t in np.flatnonzero(mask):
            weight *= pi[state[t], action[t]] / mu[state[t], action[t]]
            visits[label_S[state[t]]] += weight * world.discount**t
            earned[label_S[state[t]]] += weight * world.discount**t * reward[t]
            if t + 1 < world.horizon and mask[t + 1]:
                moves[label_S[state[t]], label_S[state[t + 1]]] += weight * world.discount**t
    chain = ratios_dice.abstract_chain(world, pi, label_S)
    assert chain.transition_ZZ == pytest.approx(moves / visits[:, None])
    assert chain.reward_Z == pytest.approx(earned / visits)
    assert chain.start_Z == pytest.approx(first)
    assert (chain.transition_ZZ.sum(-1) < 1).all()  # the rest is the end of the episode
    # The chain's value by running it, not by solving it.
    law_Z, value = chain.start_Z, 0.0
    for t in range(400):
        value += world.discount**t * float(law_Z @ chain.reward_Z)
        law_Z = law_Z @ chain.transition_ZZ
    assert chain.value == pytest.approx(value) == pytest.approx(float(world.value(pi)))
    assert chain.start_Z @ chain.state_value_Z == pytest.approx(chain.value)


def test_an_abstraction_labels_every_state():
    world = SMALL["random"]
    for wrong in ([0, 1], [0, -1, 1], [0.5, 0.0, 1.0]):
        with pytest.raises(UserError, match="expected a label 0, 1, … for each of 3 states"):
            ratios_dice.abstract_chain(world, policies(world), np.array(wrong))


def test_occupancy_chi2_is_not_the_chi2_of_the_actions():
    base, other = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    assert ratios_dice.occupancy_chi2(other, base) == pytest.approx(0.08 + 0.3 + 1.25 - 1)
    with pytest.raises(UserError, match="base has no mass"):
        ratios_dice.occupancy_chi2(other, np.array([0.6, 0.4, 0.0]))
