"""The exact law of registered estimators against known fractions, ordered enumeration and other oracles."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from support.refusals import refuses
from support.small_mdps import SMALL, policies, random_mdp
from test_estimators_bandit import BANDIT, full
from test_estimators_trajectory import TRAJECTORY, everything

from testbed.errors import UserError
from testbed.estimators import Estimate, estimator
from testbed.estimators.logged_rounds import logged
from testbed.exact import mdp
from testbed.exact.bandit_moments import LoggedDistribution, linear_weight
from testbed.exact.estimator_distribution import (
    EstimatorDistribution,
    UnitDistribution,
    _values,
    bandit_units,
    episode_units,
    exact_distribution,
    exact_moments,
    response_units,
)
from testbed.exact.response_tree import enumerate_leaves, random_policies, random_tree

TWO_ARMS = LoggedDistribution(
    np.ones(1), np.array([[0.75, 0.25]]), np.array([[0.25, 0.75]]), np.array([[0.0, 1.0]]), np.zeros((1, 2))
)
RNG = np.random.default_rng(0)
COINS_SA = RNG.random((2, 2))
LOGGED = LoggedDistribution(
    np.array([0.3, 0.7]), RNG.dirichlet(np.ones(2), 2), RNG.dirichlet(np.ones(2), 2), COINS_SA,
    COINS_SA * (1 - COINS_SA),
)  # fmt: skip
MODEL_SA, FEATURE_SAD = RNG.normal(size=(2, 2)), RNG.normal(size=(2, 2, 2))
UNITS = bandit_units(LOGGED, model_SA=MODEL_SA, feature_SAD=FEATURE_SAD)
NEED_MORE = {"mips", "instrumental_variable"}
"""Their units have a field that a LoggedDistribution does not know."""


def test_the_self_normalized_estimate_of_two_arms_has_the_known_fractions():
    # Sums over binomial counts of k rewards 1 with weight 3 against n - k with weight 1/3, by hand.
    means = [Fraction(1, 4), Fraction(2, 5), Fraction(413, 836), Fraction(311, 560), Fraction(233123, 390572)]
    variances = [3 / 16, 0.20625, 0.18019, 0.14724, 0.11805]
    for n, (mean, variance) in enumerate(zip(means, variances, strict=True), start=1):
        found = exact_moments("snips", TWO_ARMS, n)
        assert found.mean == pytest.approx(float(mean), rel=1e-13)
        assert found.variance == pytest.approx(variance, abs=5e-6)
        assert (found.value, found.samples, found.n) == (0.75, n + 1, n)
        assert found.bias == pytest.approx(float(mean) - 0.75)
        assert found.mse == pytest.approx(found.bias**2 + found.variance)


def test_the_cdf_counts_the_value_itself_and_the_quantile_is_the_first_to_reach_its_level():
    law = exact_distribution("snips", TWO_ARMS, 1)
    assert [law.cdf(x) for x in (-0.1, 0.0, 0.9, 1.0)] == pytest.approx([0.0, 0.75, 0.75, 1.0])
    assert [law.quantile(x) for x in (0.0, 0.75, 0.76, 1.0)] == [0.0, 0.0, 1.0, 1.0]
    ninths = EstimatorDistribution(np.arange(9.0), np.full(9, 1 / 9), 4.0, 1, 0.0)
    assert ninths.quantile(1 / 3) == 2.0, "three times 1/9 are less than a third of nine times 1/9"


@pytest.mark.parametrize("name", sorted(set(BANDIT) - NEED_MORE))
@pytest.mark.parametrize("n", [2, 3])
def test_the_law_is_that_of_every_ordered_sample_taken_alone(name, n):
    function = estimator[name].function
    chances, values = [], []
    for chosen in itertools.product(range(len(UNITS.mass_K)), repeat=n):
        chances.append(np.prod(UNITS.mass_K[list(chosen)]))
        values.append(float(function(UNITS.data.take(np.array(chosen))).value))
    found = exact_distribution(name, UNITS, n)
    order = np.argsort(values, kind="stable")
    levels = np.cumsum(np.array(chances)[order])
    for level in (0.05, 0.5, 0.95):
        index = np.searchsorted(levels, level - 1e-12)
        assert found.quantile(level) == pytest.approx(np.array(values)[order][index], abs=1e-9)
        assert found.cdf(found.quantile(level) + 1e-9) >= level - 1e-12
    mean = float(np.dot(chances, values))
    moments = found.moments()
    assert moments.mean == pytest.approx(mean, abs=1e-12)
    assert moments.variance == pytest.approx(np.dot(chances, (np.array(values) - mean) ** 2), abs=1e-12)
    assert found.chance_R.sum() == pytest.approx(1.0)
    direct = exact_moments(name, UNITS, n)
    assert (direct.mean, direct.variance) == pytest.approx((moments.mean, moments.variance), abs=1e-12)
    if estimator[name].promises["unbiased"]:
        assert direct.bias == pytest.approx(0.0, abs=1e-12)


def test_a_linear_estimator_has_the_formulas_moments_at_any_sample_size():
    for name, weight_SA, model_SA in (
        ("ips", LOGGED.weight_SA, None),
        ("clipped_ips", np.minimum(LOGGED.weight_SA, 0.9), None),
        ("dr", LOGGED.weight_SA, MODEL_SA),
    ):
        hyper = {"lambda_": 0.9} if name == "clipped_ips" else {}
        found, formula = (
            exact_moments(name, UNITS, 10**6, most=1, **hyper),  # one unit says all
            linear_weight(LOGGED, weight_SA, model_SA),
        )
        assert found.bias == pytest.approx(formula.bias, abs=1e-13)
        assert found.variance * 10**6 == pytest.approx(formula.n_variance, rel=1e-12)
        whole, direct = (
            exact_moments(name, UNITS, 3, **hyper),
            exact_distribution(name, UNITS, 3, **hyper).moments(),
        )
        assert (whole.mean, whole.variance) == pytest.approx((direct.mean, direct.variance), rel=1e-12)
        assert (whole.n, direct.n, whole.value) == (3, 3, direct.value)


@pytest.mark.parametrize("name", ["random", "terminal"])
def test_one_episode_has_the_moments_of_the_recursions(name):
    world = SMALL[name]
    pi, mu = policies(world, seed=1), policies(world, seed=2)
    q_hat = np.random.default_rng(3).normal(size=(world.horizon, world.states, world.actions))
    units = episode_units(world, pi, mu, q_hat, marginal=True)
    for estimate, variance in (
        ("trajectory_is", mdp.importance_variance(world, pi, mu)),
        ("pdis", mdp.per_decision_variance(world, pi, mu)),
        ("trajectory_dr", mdp.doubly_robust_variance(world, pi, mu, q_hat)),
    ):
        found = exact_moments(estimate, units, 7)
        assert found.variance * 7 == pytest.approx(variance, rel=1e-10)
        assert found.bias == pytest.approx(0.0, abs=1e-12)
    assert exact_moments("marginalized_is", units, 3).bias == pytest.approx(0.0, abs=1e-12)
    assert exact_moments("trajectory_wis", units, 1).mean == pytest.approx(float(world.value(mu)))


def test_weighted_importance_sampling_of_two_episodes_is_its_definition_over_pairs():
    world = random_mdp(1, horizon=2)
    pi, mu = policies(world, seed=1), policies(world, seed=2)
    table = mdp.enumerate_episodes(world, mu)
    w = np.prod(pi[table.state_NT, table.action_NT] / mu[table.state_NT, table.action_NT], axis=-1)
    g, p = table.reward_NT @ [1.0, 0.9], table.probability_N
    value = (w * g + (w * g)[:, None]) / (w + w[:, None])
    found = exact_moments("trajectory_wis", episode_units(world, pi, mu), 2)
    assert found.mean == pytest.approx(p @ value @ p, rel=1e-12)
    assert found.variance == pytest.approx(p @ value**2 @ p - (p @ value @ p) ** 2, rel=1e-10)


def test_responses_of_a_tree_are_units_too():
    tree = random_tree(2, 3, seed=1, end_token=1)
    mu, pi = random_policies(tree, 0.6, seed=2)
    found = exact_moments("trajectory_is", response_units(tree, mu, pi), 1)
    leaves = enumerate_leaves(tree)
    target, square = leaves.probability(pi), leaves.probability(pi) ** 2 / leaves.probability(mu)
    assert found.value == pytest.approx(target @ leaves.reward_L)
    assert found.mean == pytest.approx(found.value)
    assert found.variance == pytest.approx(square @ leaves.reward_L**2 - found.value**2)
    assert exact_moments("trajectory_wis", response_units(tree, mu, mu), 5).bias == pytest.approx(
        0, abs=1e-12
    )


def test_responses_of_one_token_are_units_too():
    tree = random_tree(2, 1, seed=1)
    mu, pi = random_policies(tree, 0.6, seed=2)
    assert exact_moments("trajectory_is", response_units(tree, mu, pi), 1).mean == pytest.approx(
        tree.value(pi)
    )


def test_samples_that_an_estimator_refuses_keep_their_probability_and_get_the_value_given():
    law = LoggedDistribution(
        np.ones(1), np.full((1, 2), 0.5), np.array([[0.0, 1.0]]), np.ones((1, 2)), np.zeros((1, 2))
    )
    refuses("sum to 0", exact_moments, "snips", law, 3)
    found = exact_moments("snips", law, 3, undefined=-5.0)
    assert found.undefined == pytest.approx(1 / 8)
    assert found.mean == pytest.approx(7 / 8 - 5 / 8)
    assert found.variance == pytest.approx(36 * 7 / 64)
    refuses("needs q_N", exact_moments, "sn_dr", law, 2, undefined=0.0)


def test_the_order_of_units_matters_exactly_to_estimators_that_say_so():
    shuffled = np.array([3, 0, 5, 1, 4, 2])
    for name in BANDIT:
        data, entry = full(), estimator[name]
        same = np.isclose(entry.function(data).value, entry.function(data.take(shuffled)).value, rtol=1e-9)
        assert same == entry.promises["symmetric"], name
    for name in TRAJECTORY:
        episodes, count = everything(), len(everything().reward_NT)
        # With three resamples the order is seen; with 200 an interval may contain all candidates anyway.
        function = estimator[name].bind(**({"n_bootstrap_samples": 3} if name == "magic" else {}))
        moved = UnitDistribution(np.full(count, 1 / count), episodes, 0.0).take(shuffled)
        kept = UnitDistribution(np.full(count, 1 / count), episodes, 0.0).take(np.sort(shuffled))
        same = np.isclose(function(kept).value, function(moved).value, rtol=1e-9)
        assert same == estimator[name].promises["symmetric"], name


def test_what_cannot_be_enumerated_is_refused_with_its_size():
    with pytest.raises(UserError, match=r"30 draws from 8 atoms have 10,295,472 count vectors \(\d+ MiB\)"):
        exact_distribution("snips", UNITS, 30)
    refuses("8 units make 16,777,216 ordered samples", exact_distribution, "mrdr", UNITS, 8)
    refuses("n is 0", exact_moments, "ips", UNITS, 0)
    refuses("n is 2.5", exact_moments, "ips", UNITS, 2.5)
    refuses("use episode_units or response_units", exact_moments, "pdis", UNITS, 1)
    refuses("Did you mean", exact_moments, "snip", UNITS, 1)
    refuses("no hyperparameter", exact_moments, "snips", UNITS, 1, lambda_=2.0)
    refuses("expected a probability from 0 to 1", exact_distribution("snips", UNITS, 1).quantile, 2.0)


def test_an_estimate_that_is_nan_is_refused_unless_it_has_a_value():
    units = UnitDistribution(np.ones(1), logged(reward=[1.0], log_weight=[0.0]), 1.0)
    index = np.zeros((2, 1), dtype=int)
    nothing = Estimate(np.array([1.0, np.nan]), np.zeros(2), np.zeros(2))
    refuses("is NaN; say with `undefined`", _values, lambda _: nothing, units, index, None)
    assert np.isnan(_values(lambda _: nothing, units, index, 0.0)).tolist() == [False, True]


def test_a_law_of_rewards_must_be_given_where_two_moments_leave_it_open():
    law = LoggedDistribution(
        np.ones(1), np.full((1, 2), 0.5), np.full((1, 2), 0.5), np.zeros((1, 2)), np.ones((1, 2))
    )
    refuses("Mean 0 and variance 1 of action 0 in context 0 do not determine", exact_moments, "snips", law, 2)
    reward, chance = np.array([[[-1.0, 1.0]] * 2]), np.full((1, 2, 2), 0.5)
    found = exact_moments("snips", bandit_units(law, reward_SAK=reward, chance_SAK=chance), 2)
    assert (found.mean, found.variance) == pytest.approx((0.0, 0.5))
    for given, message in (
        ({"reward_SAK": reward}, "belong together"),
        ({"reward_SAK": 2 * reward, "chance_SAK": chance}, "do not have the LoggedDistribution's means"),
        ({"reward_SAK": reward[0], "chance_SAK": chance}, "has shape"),
    ):
        refuses(message, bandit_units, law, **given)
    with pytest.raises(UserError, match="one probability for each unit"):
        UnitDistribution(np.ones(2) / 2, logged(reward=np.zeros(3), log_weight=np.zeros(3)), 0.0)


def test_chances_of_rewards_that_do_not_add_up_are_refused_though_both_moments_fit():
    law = LoggedDistribution(
        np.ones(1), np.full((1, 1), 1.0), np.full((1, 1), 1.0), np.zeros((1, 1)), np.ones((1, 1))
    )
    # Mean 0, and 2 (1/4 + 2/8) = 1, in three of four cases.
    reward, chance = np.array([[[-1.0, 1.0, -(2**0.5), 2**0.5]]]), np.array([[[0.25, 0.25, 0.125, 0.125]]])
    says = "do not have the LoggedDistribution's means"
    refuses(says, bandit_units, law, reward_SAK=reward, chance_SAK=chance)
