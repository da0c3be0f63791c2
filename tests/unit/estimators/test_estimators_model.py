"""Estimators with a model or a table: judged on logs with the exact law and by identities.

MAGIC: its parts, its risk, its weights on the simplex, its bootstrap, and bad input.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from references import reference_trajectories as slow
from scipy.optimize import minimize
from support.refusals import refuses
from test_estimators_trajectory import FOUR, floats, logged, replaced, sample

from testbed.estimators.abstraction import star
from testbed.estimators.dice import dice, dice_solution
from testbed.estimators.doubly_robust_trajectory import more_robust_q, trajectory_dm, wdr
from testbed.estimators.fqe import cross_fitted, fitted_q, fitted_q_steps, fqe, fqe_finite
from testbed.estimators.magic import bootstrap_wdr, contributions, magic, mixture, simplex_minimum
from testbed.estimators.marginal import counted_state_ratios, marginalized_is_counts
from testbed.estimators.trajectory_weights import LoggedEpisodes


def exact_log(seed=1, **changes):
    """(world, pi, mu, a log in which every trajectory is exactly as frequent as likely)."""
    world, pi, mu = slow.quarters(seed, **changes)
    return world, pi, mu, logged(slow.balanced(world, mu), pi, mu, world.gamma, world.horizon)


@pytest.fixture(scope="module")
def exact():
    return exact_log()


def endless(seed, n=40, steps=5, covered=True, terminal=True):
    """A log of a random world of 3 states and 2 actions, whose state 2 ends episodes if asked for."""
    rng = np.random.default_rng(seed)
    law = rng.dirichlet(np.ones(3), size=(3, 2))
    pi, mu = rng.dirichlet([2.0, 2.0], size=(2, 3))
    shape = (n, steps)
    state, action, following, mask = (np.zeros(shape, dtype=int) for _ in range(4))
    for i in range(n):
        s = int(rng.integers(2))
        for t in range(steps):
            a = int(rng.random() < mu[s, 1]) if covered or s == 0 else 0
            k = int(rng.choice(3, p=law[s, a]))
            state[i, t], action[i, t], following[i, t], mask[i, t] = s, a, k, 1
            s = k
            if terminal and k == 2:
                break
    mask = mask.astype(bool)
    return LoggedEpisodes.tabular(
        state_NT=state, action_NT=action, reward_NT=rng.normal(size=shape), next_state_NT=following,
        mask_NT=mask, pi_SA=pi, mu_SA=mu, gamma=0.7, done_NT=mask & (following == 2) & terminal,
    )  # fmt: skip


def certainty_equivalence(episodes):
    """(I - gamma P^pi)^-1 R of the counted world, by iterating V; written for one data set with loops."""
    pi, (states, actions) = episodes.pi_SA, episodes.pi_SA.shape
    seen = {}
    for i, t in zip(*np.nonzero(episodes.mask_NT), strict=True):
        key = int(episodes.state_NT[i, t]), int(episodes.action_NT[i, t])
        after = None if episodes.done_NT[i, t] else int(episodes.next_state_NT[i, t])
        seen.setdefault(key, []).append((episodes.reward_NT[i, t], after))
    q = np.zeros((states, actions))
    for _ in range(400):
        v = (pi * q).sum(-1)
        q = np.array(
            [[np.mean([r + episodes.gamma * (0 if k is None else v[k])
                       for r, k in seen[s, a]]) if (s, a) in seen else 0.0
              for a in range(actions)]
             for s in range(states)]
        )  # fmt: skip
    return q


@pytest.mark.parametrize("terminal", [True, False])
def test_tabular_fitted_q_is_the_certainty_equivalence_value(terminal):
    episodes = endless(0, terminal=terminal)
    expected = certainty_equivalence(episodes)
    assert_allclose(fitted_q(episodes), expected, atol=1e-12)
    v = (expected * episodes.pi_SA).sum(-1)
    assert fqe(episodes).value == pytest.approx(v[episodes.state_NT[:, 0]].mean(), rel=1e-12)


def test_next_states_and_ends_are_read_off_the_episodes_when_not_given():
    episodes = endless(1, steps=4)
    bare = replaced(episodes, next_state_NT=None, done_NT=None)
    last = episodes.mask_NT.copy()
    last[:, :-1] = False
    cut = replaced(episodes, mask_NT=episodes.mask_NT & ~last)  # the last step's successor is not in the log
    assert_allclose(fitted_q(bare), fitted_q(cut), atol=1e-12)


def test_a_pair_without_data_takes_the_stated_value():
    episodes = endless(2, covered=False)
    q = fitted_q(episodes, unseen=-3.0)
    assert q[1, 1] == -3.0
    assert fitted_q(episodes)[1, 1] == 0.0


def test_fitted_q_per_step_is_q_of_the_world_on_its_exact_law(exact):
    world, pi, _, episodes = exact
    for free in (fitted_q_steps, more_robust_q):
        assert_allclose(free(episodes), floats(slow.q_values(world, pi)), atol=1e-12)
    assert fqe_finite(episodes).value == pytest.approx(float(slow.value(world, pi)), rel=1e-12)


def test_cross_fitting_never_lets_an_episode_fit_its_own_model():
    episodes = sample(lead=(), n=6)
    first = cross_fitted(episodes, fitted_q_steps, folds=3)
    poked = episodes.reward_NT.copy()
    poked[4] += 100.0
    second = cross_fitted(replaced(episodes, reward_NT=poked), fitted_q_steps, folds=3)
    same = (first.q_NT == second.q_NT).all(-1)
    np.testing.assert_array_equal(same[[1, 4]], True)  # fold 1 holds episodes 1 and 4
    assert not same.all()
    refuses("folds is 7", cross_fitted, episodes, fitted_q_steps, folds=7)


@pytest.mark.parametrize("covered", [True, False])
def test_the_dice_value_is_the_lstd_value_of_the_same_counts(covered):
    episodes = endless(3, covered=covered)
    found = dice_solution(episodes)
    by_q = (found.start_X * found.q_value.ravel()).sum() / (1 - episodes.gamma)
    assert dice(episodes).value == pytest.approx(by_q, rel=1e-11)
    assert bool(found.singular) is True  # state 2 ends every episode, so no pair of it has data
    inner = endless(3, covered=covered, terminal=False)
    assert bool(dice_solution(inner).singular) is not covered
    if covered:
        assert dice(inner).value == pytest.approx(float(fqe(inner).value), rel=1e-11)
        assert dice_solution(inner).residual < 1e-12
    else:
        assert dice_solution(inner).residual > 1e-3


def test_the_ratio_is_one_where_the_data_are_the_targets_own_discounted_occupancy():
    # One state: every law is its own occupancy, and with pi = mu exact in the counts zeta is 1.
    action = np.array([[0, 0, 1, 0], [1, 0, 0, 0]])
    episodes = LoggedEpisodes.tabular(
        state_NT=np.zeros((2, 4), int), action_NT=action, reward_NT=np.ones((2, 4)),
        next_state_NT=np.zeros((2, 4), int), pi_SA=[[0.75, 0.25]], mu_SA=[[0.5, 0.5]], gamma=0.9,
    )  # fmt: skip
    assert_allclose(dice_solution(episodes).ratio_SA, 1.0, rtol=1e-12)
    assert dice(episodes).value == pytest.approx(10.0)
    assert dice(episodes).ess == pytest.approx(8.0)


def test_dice_and_stationary_fitted_q_want_a_discount_and_a_successor():
    episodes = sample(lead=())
    for fast in (dice, fqe):
        refuses("gamma is 1", fast, replaced(episodes, gamma=1.0))
    single = LoggedEpisodes.tabular(
        state_NT=[[0]], action_NT=[[0]], reward_NT=np.ones((1, 1)), pi_SA=[[1.0]], mu_SA=[[1.0]], gamma=0.5
    )
    refuses("known successor", dice, single)


@pytest.mark.parametrize(
    ("estimate", "n", "hyper"),
    [
        (star, 7, {"abstraction_S": [0]}),
        (star, 7, {"c": -1}),
        (magic, 1, {}),
        (magic, 7, {"alpha": 0.0}),
        (magic, 7, {"n_bootstrap_samples": 0}),
    ],
)
def test_settings_and_samples_without_meaning_are_refused(estimate, n, hyper):
    refuses(".", estimate, sample(n=n), **hyper)


def test_counted_ratios_are_the_exact_ones_on_the_exact_law(exact):
    world, pi, mu, episodes = exact
    true_TS = floats(slow.marginals(world, pi)) / floats(slow.marginals(world, mu))
    assert_allclose(counted_state_ratios(episodes), true_TS[np.arange(3), episodes.state_NT], rtol=1e-12)
    assert marginalized_is_counts(episodes).value == pytest.approx(float(slow.value(world, pi)), rel=1e-12)


@pytest.mark.parametrize("label_S", [[0, 1], [0, 0]])
def test_an_abstract_chain_has_the_true_value_only_with_discounted_counts(exact, label_S):
    world, pi, mu, episodes = exact
    truth = float(slow.value(world, pi))
    assert star(episodes, abstraction_S=label_S).value == pytest.approx(truth, rel=1e-12)
    assert abs(star(episodes, abstraction_S=label_S, discounted_counts=False).value - truth) > 1e-3
    behavior = star(episodes, abstraction_S=label_S, c=0).value
    assert behavior == pytest.approx(float(slow.value(world, mu)), rel=1e-12)


def test_without_discount_plain_counts_are_right_too():
    world, pi, _, episodes = exact_log(1, gamma=1)
    for discounted in (True, False):
        found = star(episodes, abstraction_S=[0, 0], discounted_counts=discounted).value
        assert found == pytest.approx(float(slow.value(world, pi)), rel=1e-10)


def test_the_last_ratio_alone_is_enough_for_a_single_state():
    world, pi, _, episodes = exact_log(4, transition=[[[1], [1]]], start=[1], reward=[[1, -2]])
    assert star(episodes, c=1).value == pytest.approx(float(slow.value(world, pi)), rel=1e-12)
    reward, log_rho = np.array([[1.0, 0.0], [0.0, 0.0]]), np.log([[2.0, 1.0], [0.5, 1.0]])
    two = LoggedEpisodes(reward_NT=reward, log_rho_NT=log_rho, state_NT=np.array([[0, 2], [1, 2]]))
    assert star(two).value == pytest.approx(0.5)  # first states count once, whatever was done there
    one = LoggedEpisodes(reward_NT=reward[:, :1], log_rho_NT=log_rho[:, :1], state_NT=np.array([[0], [1]]))
    assert star(one).value == pytest.approx(0.5), "episodes of one step have no moves"


def test_a_chain_that_never_ends_is_refused():
    """pi takes no action that ended the episode: every weighted step of state 0 leads back to it."""
    zeros = np.zeros((1, 2), dtype=int)
    never = LoggedEpisodes(reward_NT=np.ones((1, 2)), log_rho_NT=np.array([[0.0, -np.inf]]), state_NT=zeros)
    refuses("the abstract chain has no end", star, never)
    assert star(replaced(never, gamma=0.5)).value == pytest.approx(2.0)  # 1 + 1/2 + 1/4 + ...
    refuses("needs a label from 0", star, never, abstraction_S=[0.0])


def test_ends_of_episodes_may_be_numbers():
    episodes = replaced(endless(1), next_state_NT=None)
    found = replaced(episodes, done_NT=episodes.done_NT.astype(float))
    assert fqe(found).value == fqe(episodes).value


def test_a_restricted_more_robust_model_has_the_least_exact_variance_of_its_class(exact):
    world, pi, mu, episodes = exact
    rng = np.random.default_rng(0)
    feature = rng.normal(size=(3, 2, 2, 3))
    found = more_robust_q(episodes, feature)
    beta = np.linalg.lstsq(feature.reshape(-1, 3), found.ravel(), rcond=None)[0]

    def variance(b):
        q_hat = (feature @ b).tolist()
        bare = slow.World(
            floats(world.transition).tolist(), floats(world.reward).tolist(), floats(world.start).tolist(), 3,
            0.8,
        )  # fmt: skip
        return slow.dr_variance(bare, floats(pi).tolist(), floats(mu).tolist(), q_hat)

    least = variance(beta)
    for direction in np.vstack([np.eye(3), rng.normal(size=(3, 3))]):
        rise, fall = variance(beta + 1e-2 * direction) - least, variance(beta - 1e-2 * direction) - least
        assert min(rise, fall) > 0
        assert rise == pytest.approx(fall, rel=1e-6)  # a parabola around its lowest point
    # Least squares on Q is another model, and a worse one.
    plain = np.linalg.lstsq(feature.reshape(-1, 3), floats(slow.q_values(world, pi)).ravel(), rcond=None)[0]
    assert variance(plain) > least + 1e-6


def test_a_field_that_is_missing_is_named():
    bare = LoggedEpisodes(reward_NT=np.zeros((2, 2)), log_rho_NT=np.zeros((2, 2)))
    refuses("needs v_NT", trajectory_dm, bare)
    assert all(fast(bare).value == 0 for fast in FOUR)


def test_the_parts_of_magic_run_from_the_model_to_weighted_doubly_robust():
    episodes = sample()
    parts = contributions(episodes).sum(-2)
    assert_allclose(parts[..., 0], trajectory_dm(episodes).value, rtol=1e-12)
    assert_allclose(parts[..., -1], wdr(episodes).value, rtol=1e-12)


def test_a_partial_estimate_weighs_rewards_up_to_its_step_and_then_asks_the_model():
    episodes = sample(lead=())
    share = episodes.share_NT
    earlier = np.hstack([np.full((7, 1), 1 / 7), share[:, :-1]])
    for j in range(4):
        expected = 0.0
        for i in range(7):
            for t in range(j + 1):
                expected += 0.8**t * share[i, t] * (episodes.reward_NT[i, t] - episodes.q_NT[i, t])
                expected += 0.8**t * earlier[i, t] * episodes.v_NT[i, t]
            if j < 3:
                expected += 0.8 ** (j + 1) * share[i, j] * episodes.v_NT[i, j + 1]
        assert contributions(episodes)[:, j + 1].sum() == pytest.approx(expected, rel=1e-12)


def test_magic_minimizes_covariance_plus_the_outer_product_of_the_biases_over_the_simplex():
    episodes = sample(n=30)
    found = mixture(episodes, alpha=0.9)
    parts = contributions(episodes)
    value = magic(episodes, alpha=0.9).value
    drawn = bootstrap_wdr(episodes, np.random.default_rng(0), 200)
    elementwise = []
    for at in np.ndindex(2, 3):
        omega = 30 * np.cov(parts[at].T)
        low, high = np.quantile(drawn[at], [0.45, 0.55])
        g = parts[at].sum(0)
        b = np.maximum(0, np.maximum(g - max(high, g[-1]), min(low, g[-1]) - g))
        risk = omega + np.outer(b, b)
        assert b.max() > 0
        elementwise.append(np.abs(simplex_minimum(omega + np.diag(b**2)) - found.weight_K[at]).max())
        x = found.weight_K[at]
        assert x.min() >= 0
        assert x.sum() == pytest.approx(1.0)
        slope = risk @ x
        # Karush-Kuhn-Tucker: no candidate would lower the risk, and those in use are level with it.
        assert slope.min() >= x @ slope - 1e-9 * np.trace(risk)
        assert value[at] == pytest.approx(x @ g, rel=1e-12)
    assert max(elementwise) > 1e-3  # squares of single biases in its place would be noticed


def test_the_simplex_minimum_agrees_with_a_general_solver():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(20, 5, 7))
    matrix = root @ np.swapaxes(root, -1, -2)
    for m, x in zip(matrix, simplex_minimum(matrix), strict=True):
        start = np.full(5, 0.2)
        general = minimize(
            lambda y, m=m: y @ m @ y, start, jac=lambda y, m=m: 2 * m @ y, method="SLSQP",
            bounds=[(0, 1)] * 5,
            constraints={"type": "eq", "fun": lambda y: y.sum() - 1}, options={"ftol": 1e-14},
        )  # fmt: skip
        assert x @ m @ x <= general.fun + 1e-9
        assert_allclose(x, general.x, atol=1e-5)
    assert_allclose(simplex_minimum(np.zeros((3, 3))).sum(), 1.0)
    assert_allclose(simplex_minimum(np.diag([1.0, 3.0])), [0.75, 0.25])


def test_a_bootstrap_sample_is_weighted_doubly_robust_of_the_drawn_episodes():
    episodes = sample(lead=(), n=9)
    drawn = bootstrap_wdr(episodes, np.random.default_rng(3), 4)
    rows = np.random.default_rng(3).integers(9, size=(4, 9))
    for b in range(4):
        fields = {
            k: v[rows[b]]
            for k, v in vars(episodes).items()
            if k in ("reward_NT", "log_rho_NT", "mask_NT", "q_NT", "v_NT")
        }
        assert drawn[b] == pytest.approx(float(wdr(LoggedEpisodes(**fields, gamma=0.8)).value), rel=1e-11)


def test_magic_takes_its_randomness_from_the_caller_alone():
    episodes = sample(n=30)
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    first, second = magic(episodes, seed=4).value, magic(episodes, seed=4).value
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    generator = np.random.default_rng(4)
    np.testing.assert_array_equal(magic(episodes, seed=generator).value, first)
    assert not np.array_equal(bootstrap_wdr(episodes, generator, 9), bootstrap_wdr(episodes, generator, 9))
