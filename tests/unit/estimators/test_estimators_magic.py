"""MAGIC: its parts, its risk, its weights on the simplex, its bootstrap, and bad input."""

import numpy as np
import pytest
from references import reference_trajectories as slow
from scipy.optimize import minimize
from test_estimators_trajectory import logged, random_world, replaced, sample

from testbed.errors import UserError
from testbed.estimators.doubly_robust_trajectory import trajectory_dm, wdr
from testbed.estimators.magic import bootstrap_wdr, contributions, magic, mixture, simplex_minimum
from testbed.estimators.trajectory_weights import LoggedEpisodes


def test_the_parts_of_magic_run_from_the_model_to_weighted_doubly_robust():
    episodes = sample()
    parts = contributions(episodes).sum(-2)
    np.testing.assert_allclose(parts[..., 0], trajectory_dm(episodes).value, rtol=1e-12)
    np.testing.assert_allclose(parts[..., -1], wdr(episodes).value, rtol=1e-12)


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
        np.testing.assert_allclose(x, general.x, atol=1e-5)
    np.testing.assert_allclose(simplex_minimum(np.zeros((3, 3))).sum(), 1.0)
    np.testing.assert_allclose(simplex_minimum(np.diag([1.0, 3.0])), [0.75, 0.25])


def constant_return(n=12):
    """pi = mu and every return 1: WDR has no error, while the model is wrong."""
    rng = np.random.default_rng(0)
    guess = rng.normal(size=(n, 1))
    return LoggedEpisodes(
        reward_NT=np.ones((n, 1)), log_rho_NT=np.zeros((n, 1)), q_NT=guess, v_NT=guess.copy()
    )


def test_magic_is_weighted_doubly_robust_where_that_has_no_error_and_the_model_has():
    found = mixture(constant_return())
    np.testing.assert_allclose(found.weight_K, [0.0, 1.0], atol=1e-12)
    assert magic(constant_return()).value == pytest.approx(1.0, rel=1e-12)


def test_magic_is_the_model_where_that_has_no_spread_and_lies_within_the_interval():
    world, pi, mu, _ = random_world(0, start=[1, 0, 0])
    data = [path for _, path in slow.paths(world, mu)][::40]
    episodes = logged(data, pi, mu, 0.9, 3).with_model(np.array(slow.q_values(world, pi)))
    center = float(wdr(episodes).value)
    shift = center - float(trajectory_dm(episodes).value)
    episodes = replaced(episodes, v_NT=episodes.v_NT + shift * (np.arange(3) == 0))
    # The shift moves WDR as well; what matters is that DM ends up inside its interval, without spread.
    found = mixture(episodes, n_bootstrap_samples=500)
    assert found.bias_K[0] == 0.0
    np.testing.assert_allclose(found.weight_K, np.eye(4)[0], atol=1e-9)
    assert magic(episodes).value == pytest.approx(float(trajectory_dm(episodes).value), rel=1e-9)


def test_resampled_shares_are_normalized_anew():
    episodes = sample(ending=False)
    ones = replaced(
        episodes, reward_NT=np.ones_like(episodes.reward_NT), q_NT=0 * episodes.q_NT, v_NT=0 * episodes.v_NT
    )
    drawn = bootstrap_wdr(ones, np.random.default_rng(0), 50)
    full = drawn[np.abs(drawn) > 0]
    assert np.quantile(full, 0.5) == pytest.approx(episodes.discount_T.sum(), rel=1e-12)


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


@pytest.mark.parametrize("hyper", [{"alpha": 0.0}, {"n_bootstrap_samples": 0}])
def test_magic_refuses_settings_without_meaning(hyper):
    with pytest.raises(UserError, match="MAGIC got 7 episodes"):
        magic(sample(), **hyper)


def test_one_episode_is_too_few_for_magic():
    with pytest.raises(UserError, match="MAGIC got 1 episodes"):
        magic(sample(n=1))
