"""Finite MDPs: the variances of weighted returns agree with the list of all episodes.

V-trace, Retrace, TD and what else iterates, against its defining sum and its fixed point.
Ratios of occupancies, by DICE, LSTD and abstract chains, agree with the list of all episodes.
"""

import numpy as np
import pytest
from support.refusals import refuses
from support.small_mdps import LISTED, SMALL, pair, policies, random_mdp

from envs import infinite_horizon
from testbed.errors import UserError
from testbed.exact import fixed_points, mdp, ratios_dice, value_learning


def q_hat(world, seed=0):
    return np.random.default_rng(seed).normal(size=(world.horizon, world.states, world.actions))


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


def test_without_a_model_the_doubly_robust_estimate_is_the_per_decision_one():
    world = SMALL["random"]
    table = mdp.enumerate_episodes(world, pair(world)[1])
    found = mdp.estimates(table, *pair(world), 0.5)
    np.testing.assert_allclose(found.doubly_robust_N, found.per_decision_N)
    assert not np.allclose(found.per_decision_N, mdp.estimates(table, *pair(world), 1.0).per_decision_N)


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


def test_a_variance_of_zero_is_not_below_it():
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        moves = {"transition_SAS": np.eye(3)[rng.integers(3, size=(3, 2))], "start_S": np.eye(3)[0]}
        world = random_mdp(seed, **moves)
        pi, mu = pair(world)
        law = np.eye(2)[rng.integers(2, size=3)]
        found += [
            mdp.doubly_robust_variance(world, pi, mu, world.q_value(pi)),
            mdp.importance_variance(world, law, law),
            mdp.additive_moments(world, law, np.ones((world.horizon, 3, 2)))[1],
        ]
    assert min(found) >= 0
    assert max(found) < 1e-12


@pytest.mark.parametrize("name", ["random", "terminal", "bernoulli"])
def test_marginalized_weights_are_unbiased_and_are_the_conditional_means_of_the_prefix_ratio(name):
    world = SMALL[name]
    pi, mu = pair(world)
    weight = ratios_dice.marginal_weights(world, pi, mu)
    mean, variance = mdp.additive_moments(world, mu, weight)
    assert mean == pytest.approx(float(world.value(pi)))
    table = mdp.enumerate_episodes(world, mu)
    rho = np.where(table.mask_NT, (pi / mu)[table.state_NT, table.action_NT], 1)
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


def test_nothing_is_added_in_or_after_a_state_that_ends():
    world = SMALL["terminal"]
    step = mdp.squared_ratio_matrix(world, *pair(world))[0]
    assert not step[:, 2].any()
    assert not step[2].any()


def test_as_many_episodes_as_there_may_be_are_listed():
    world = SMALL["random"]
    count = len(mdp.enumerate_episodes(world, pair(world)[1]).probability_N)
    assert len(mdp.enumerate_episodes(world, pair(world)[1], most=count).probability_N) == count


def test_what_cannot_be_weighted_or_written_down_is_refused():
    world = SMALL["random"]
    pi, mu = pair(world)
    hole = np.array([[1.0, 0.0], *mu[1:]])
    refuses("never takes action 1 in state 0", mdp.importance_variance, world, pi, hole)
    refuses("mu has no mass at index", ratios_dice.marginal_weights, world, pi, hole)
    refuses("exceed 10", mdp.enumerate_episodes, world, mu, most=10)
    refuses("normal noise", mdp.enumerate_episodes, SMALL["normal"], mu)


def simulated_vtrace(world, pi, mu, value, rho_bar, c_bar, lam, depth=200):
    """The operator from its definition, as a sum over time with the trace carried along."""
    rho = pi / mu
    moves = world.transition_SAS
    total, mass = value.copy(), np.eye(world.states)
    delta = world.mean_reward_SA + world.discount * moves @ value - value[:, None]
    for _ in range(depth):
        total = total + mass @ (mu * np.minimum(rho_bar, rho) * delta).sum(-1)
        mass = world.discount * mass @ np.einsum("sa,sat->st", mu * lam * np.minimum(c_bar, rho), moves)
    return total


@pytest.mark.parametrize(("rho_bar", "c_bar", "lam"), [(1.0, 1.0, 1.0), (2.0, 0.7, 0.9), (np.inf, 1.0, 0.5)])
def test_the_vtrace_operator_is_its_defining_sum_and_evaluates_the_clipped_policy(rho_bar, c_bar, lam):
    world = random_mdp(7)
    pi, mu = pair(world)
    value = np.array([0.3, -1.0, 2.0])
    operator = fixed_points.vtrace(world, pi, mu, rho_bar=rho_bar, c_bar=c_bar, lam=lam)
    assert operator(value) == pytest.approx(simulated_vtrace(world, pi, mu, value, rho_bar, c_bar, lam))
    mixed = np.minimum(rho_bar * mu, pi)
    mixed /= mixed.sum(-1, keepdims=True)
    assert operator.fixed_point() == pytest.approx(infinite_horizon.state_value(world, mixed))
    assert fixed_points.vtrace_policy(pi, mu, rho_bar) == pytest.approx(mixed)
    bound = fixed_points.vtrace_contraction_bound(pi, mu, rho_bar, 0.9)
    assert operator.sup_norm <= bound + 1e-12
    one_step = fixed_points.vtrace(world, pi, mu, rho_bar=rho_bar, c_bar=c_bar, lam=0.0)
    assert one_step.sup_norm == pytest.approx(bound)


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_retrace_evaluates_the_target_and_is_its_defining_sum(lam):
    world = random_mdp(8)
    pi, mu = pair(world)
    operator = fixed_points.retrace(world, pi, mu, lam=lam)
    assert operator.fixed_point() == pytest.approx(infinite_horizon.q_value(world, pi).ravel())
    q = np.random.default_rng(0).normal(size=(3, 2))
    ahead = np.einsum("sat,t->sa", world.transition_SAS, (pi * q).sum(-1))
    delta = world.mean_reward_SA + world.discount * ahead - q
    total, carried = q + delta, delta
    for _ in range(300):
        traced = (mu * lam * np.minimum(1.0, pi / mu) * carried).sum(-1)
        carried = world.discount * world.transition_SAS @ traced
        total = total + carried
    assert operator(q.ravel()) == pytest.approx(total.ravel())
    assert operator.sup_norm <= 0.9 + 1e-12


def test_operators_know_terminal_states_and_refuse_discount_one():
    world = SMALL["terminal"]
    pi, mu = pair(world)
    trace = fixed_points.vtrace(world, pi, mu, rho_bar=np.inf)
    assert trace.fixed_point() == pytest.approx(infinite_horizon.state_value(world, pi))
    assert fixed_points.retrace(world, pi, mu).fixed_point() == pytest.approx(
        infinite_horizon.q_value(world, pi).ravel()
    )
    count_SAS = np.zeros((3, 2, 3))
    count_SAS[0, 0] = 1.0
    offset_X = fixed_points.fitted_q(count_SAS, np.full((3, 2), 2.0), pi, 0.0).offset_X
    assert offset_X.tolist() == [2, 0, 0, 0, 0, 0], "pairs without data keep 0"
    hole = np.array([[1.0, 0.0], *mu[1:]])
    assert np.isfinite(fixed_points.vtrace(world, pi, hole).fixed_point()).all()
    with pytest.raises(UserError, match=r"infinite rho_bar \(states where it does not: \[0\]\)"):
        fixed_points.vtrace(world, pi, hole, rho_bar=np.inf)
    refuses("rho_bar is 0; mu must take some action", fixed_points.vtrace, world, pi, mu, rho_bar=0.0)
    refuses("some action of pi everywhere", fixed_points.vtrace_policy, 1.0 - hole, hole, 1.0)
    refuses("expected less than 1", fixed_points.retrace, random_mdp(0, discount=1.0), pi, mu)


def test_baird_diverges_from_15_17_on_and_its_first_stable_target_networks_are_known():
    star = value_learning.baird_star(0.99)
    assert star.td_abscissa() == pytest.approx(0.23925, abs=5e-6)
    assert [value_learning.baird_star(g).td_abscissa() > 0 for g in (0.882, 0.883)] == [False, True]
    assert star.fitted_radius() == pytest.approx(0.99)
    first = {
        a: next(k for k in range(1, 200) if star.target_radius(a, k) < 1) for a in (0.01, 0.05, 0.1, 0.5)
    }
    assert first == {0.01: 77, 0.05: 16, 0.1: 9, 0.5: 2}
    radius = [star.target_radius(0.1, k) for k in (1, 2, 5, 10)]
    assert radius == pytest.approx([1.0239, 1.0361, 1.0208, 0.9824], abs=5e-5)


def test_one_inner_step_is_td_and_many_are_fitted_q():
    rng = np.random.default_rng(0)
    found = value_learning.linear_td(
        rng.normal(size=(4, 2)), np.full(4, 0.25), rng.dirichlet(np.ones(4), 4), 0.9
    )
    assert found.target_radius(0.1, 1) == pytest.approx(found.td_radius(0.1))
    assert found.target_radius(0.1, 100_000) == pytest.approx(found.fitted_radius())


def test_expectiles_have_their_known_values_and_ignore_the_order_of_the_atoms():
    value, mass = np.array([4.0, 0.0, 1.0]), np.array([0.2, 0.5, 0.3])
    found = [value_learning.expectile(value, mass, tau) for tau in (0.5, 0.7, 0.9, 0.99)]
    assert found == pytest.approx([1.1, 1.71053, 2.88462, 3.85922], abs=5e-6)
    refuses("0 < tau < 1", value_learning.expectile, value, mass, 1.0)


def test_gae_with_a_wrong_value_is_off_by_the_formula_and_a_plain_sum_over_time_agrees():
    world = random_mdp(9)
    pi = policies(world, seed=1)
    error = np.array([0.3, -0.2, 0.5])
    value = infinite_horizon.state_value(world, pi)
    found = value_learning.expected_gae(world, pi, value + error, 0.7)
    advantage = infinite_horizon.q_value(world, pi) - value[:, None]
    assert found - advantage == pytest.approx(value_learning.gae_bias(world, pi, error, 0.7))
    step = np.einsum("sa,sat->st", pi, world.transition_SAS)
    reward = (pi * world.mean_reward_SA).sum(-1)
    hat = value + error
    law, total = world.transition_SAS, world.mean_reward_SA + 0.9 * world.transition_SAS @ hat - hat[:, None]
    for count in range(1, 200):
        total = total + 0.63**count * law @ (reward + 0.9 * step @ hat - hat)
        law = law @ step
    assert found == pytest.approx(total)
    refuses("no terminal states", value_learning.gae_bias, SMALL["terminal"], pi, error, 0.7)


def test_the_emphatic_weights_give_the_worlds_own_gradient():
    world = random_mdp(10)
    pi = policies(world, seed=1)
    emphasis = value_learning.emphasis(world, pi, world.start_S)
    found = value_learning.off_policy_gradient(world, pi, emphasis)
    assert found == pytest.approx(infinite_horizon.gradient(world, pi), abs=1e-13)


def test_emphasis_is_where_the_follow_on_trace_settles():
    world = random_mdp(11)
    pi, mu = pair(world)
    step = np.einsum("sa,sat->st", mu, world.transition_SAS)
    weighted = np.einsum("sa,sat->st", mu * (pi / mu), world.transition_SAS)
    mass, trace, interest = np.full(3, 1 / 3), np.zeros(3), np.array([1.0, 0.5, 2.0])
    for _ in range(500):  # trace(s) = P(s_t = s) E[F_t | s], F_t = discount rho F_{t-1} + interest
        mass = mass @ step
        trace = 0.9 * trace @ weighted + mass * interest
    assert trace == pytest.approx(value_learning.emphasis(world, pi, mass * interest))


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
    refuses("expected 0 <= discount < 1", ratios_dice.linear_system, law, pi, world.start_S, 1.0)
    law[1, 0] = 0
    refuses("hold no action 0 in state 1", ratios_dice.linear_system, law, pi, world.start_S, 0.9)


def test_the_chains_counts_are_means_of_importance_weighted_counts_and_plain_ones_mislead():
    world = SMALL["random"]
    pi, mu = pair(world)
    table = mdp.enumerate_episodes(world, mu)
    prefix = np.cumprod(pi[table.state_NT, table.action_NT] / mu[table.state_NT, table.action_NT], axis=-1)
    before = np.hstack([np.ones((len(prefix), 1)), prefix[:, :-1]])
    visits = [[table.mean(before[:, t] * (table.state_NT[:, t] == s)) for s in range(3)] for t in range(3)]
    assert np.array(visits) == pytest.approx(world.occupancy(pi))
    wrong = ratios_dice.abstract_chain(world, pi, np.array([0, 0, 1]), discounted_counts=False).value
    assert abs(wrong - float(world.value(pi))) > 0.05


def test_a_label_that_no_state_has_is_an_empty_part_of_the_chain():
    world = SMALL["random"]
    pi = pair(world)[0]
    plain = ratios_dice.abstract_chain(world, pi, np.array([0, 1, 0]))
    found = ratios_dice.abstract_chain(world, pi, np.array([0, 2, 0]))
    assert found.transition_ZZ == pytest.approx(np.insert(np.insert(plain.transition_ZZ, 1, 0, 0), 1, 0, 1))
    assert found.reward_Z == pytest.approx(np.insert(plain.reward_Z, 1, 0))
    assert found.value == pytest.approx(plain.value)


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
    refuses("base has no mass", ratios_dice.occupancy_chi2, other, np.array([0.6, 0.4, 0.0]))
