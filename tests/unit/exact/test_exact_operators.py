"""V-trace, Retrace, TD and what else iterates, against its defining sum and its fixed point."""

import numpy as np
import pytest
from support.small_mdps import SMALL, pair, policies, random_mdp

from envs import infinite_horizon
from testbed.errors import UserError
from testbed.exact import fixed_points, value_learning


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
    assert operator.sup_norm <= fixed_points.vtrace_contraction_bound(pi, mu, rho_bar, 0.9) + 1e-12


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
    hole = np.array([[1.0, 0.0], *mu[1:]])
    assert np.isfinite(fixed_points.vtrace(world, pi, hole).fixed_point()).all()
    with pytest.raises(UserError, match=r"infinite rho_bar \(states where it does not: \[0\]\)"):
        fixed_points.vtrace(world, pi, hole, rho_bar=np.inf)
    with pytest.raises(UserError, match="some action of pi everywhere"):
        fixed_points.vtrace_policy(1.0 - hole, hole, 1.0)
    with pytest.raises(UserError, match="expected less than 1"):
        fixed_points.retrace(random_mdp(0, discount=1.0), pi, mu)


# Value learning


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
    with pytest.raises(UserError, match="0 < tau < 1"):
        value_learning.expectile(value, mass, 1.0)


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
    with pytest.raises(UserError, match="no terminal states"):
        value_learning.gae_bias(SMALL["terminal"], pi, error, 0.7)


def test_the_complex_step_and_the_emphatic_weights_give_the_worlds_own_gradient():
    world = random_mdp(10)
    pi = policies(world, seed=1)
    found = value_learning.interest_gradient(world, np.log(pi), world.start_S)
    assert found == pytest.approx(infinite_horizon.gradient(world, pi), abs=1e-13)
    emphasis = value_learning.emphasis(world, pi, world.start_S)
    assert value_learning.off_policy_gradient(world, pi, emphasis) == pytest.approx(found)


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


def test_the_proxy_bound_is_an_inequality_with_a_known_equality_and_needs_a_correlated_proxy():
    base, reward = np.array([0.3, 0.2, 0.4, 0.1]), np.array([0.0, 1.0, 0.5, 2.0])
    proxy = np.array([0.5, 1.0, 0.2, 1.0])
    tight = value_learning.tight_occupancy(base, reward, proxy, 0.7)
    assert tight.sum() == pytest.approx(1.0)
    assert tight.min() > 0
    assert value_learning.proxy_slack(base, tight, reward, proxy) == pytest.approx(0.0, abs=1e-12)
    assert value_learning.proxy_slack(base, base[::-1], reward, proxy) > 0.01
    # With the reward itself as proxy the bound says gain >= gain.
    assert value_learning.proxy_slack(base, base[::-1], reward, 3 * reward + 1) == pytest.approx(
        0.0, abs=1e-7
    )
    with pytest.raises(UserError, match="correlation"):
        value_learning.proxy_slack(base, tight, reward, -proxy)
    with pytest.raises(UserError, match="must vary"):
        value_learning.proxy_slack(base, tight, reward, np.ones(4))
