"""Bandit estimators: what they promise, by hand, by enumeration of every data set, and on bad input.

Logged rounds: weights from probabilities or logarithms, weights of 0 and beyond e^700, bad input.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from support.logged_worlds import FAMILY, WORLDS, embedded, moments, random_world, two_arms
from support.refusals import refuses

from testbed.errors import UserError
from testbed.estimators import Estimate, estimator, kish_ess, mean_of_terms, standard_error
from testbed.estimators.embedding import embedding_log_weight
from testbed.estimators.logged_rounds import Logged, check_weights, logged, mean_product, normalized

BANDIT = [name for name in estimator if estimator[name].promises["family"] == "bandit"]
WITH_MODEL = ("dr", "switch_dr", "dr_ps", "dr_os", "sg_dr")
PLAIN = ("ips", "clipped_ips", "propensity_clipped_ips", "exponential_smoothing", "power_of_ratio")
PLAIN += ("ix", "subgaussian_ips", "log_smoothing", "lse")
BITING = {name: hyper for name, hyper, _ in FAMILY} | {
    "log_smoothing": {"lambda_": 0.7},
    "lse": {"lambda_": -0.7},
}
REWARD, W, MU = np.array([1.0, 0.5, 0.25]), np.array([2.0, 0.5, 4.0]), np.array([0.25, 0.5, 0.2])
Q, Q_PI = np.array([0.5, 0.5, 0.0]), np.array([0.4, 0.6, 0.2])
HAND = Logged(REWARD, np.log(W), MU, W * MU, Q, Q_PI)
# (1/3) sum of the terms, written out for the three rounds above.
BY_HAND = {
    "ips": ({}, (2 + 0.25 + 1) / 3),
    "clipped_ips": ({"lambda_": 3.0}, (2 + 0.25 + 0.75) / 3),
    "propensity_clipped_ips": ({"tau": 0.4}, (0.5 / 0.4 + 0.25 + 0.8 / 0.4 * 0.25) / 3),
    "exponential_smoothing": (
        {"alpha": 0.5},
        (0.5 / 0.5 + 0.25 / 0.5**0.5 * 0.5 + 0.8 / 0.2**0.5 * 0.25) / 3,
    ),
    "power_of_ratio": ({"alpha": 0.5}, (2**0.5 + 0.5**0.5 * 0.5 + 2 * 0.25) / 3),
    "ix": ({"gamma": 0.05}, (0.5 / 0.3 + 0.25 / 0.55 * 0.5 + 0.8 / 0.25 * 0.25) / 3),
    "subgaussian_ips": ({"lambda_": 0.5}, (2 / 1.5 + 0.5 / 0.75 * 0.5 + 4 / 2.5 * 0.25) / 3),
    "log_smoothing": ({"lambda_": 2.0}, (math.log(5) + math.log(1.5) + math.log(3)) / 6),
    "lse": ({"lambda_": -1.0}, -math.log((math.exp(-2) + math.exp(-0.25) + math.exp(-1)) / 3)),
    "snips": ({}, 3.25 / 6.5),
    "dm": ({}, 1.2 / 3),
    "dr": ({}, (0.4 + 1 + 0.6 + 0 + 0.2 + 1) / 3),
    "switch_dr": ({"lambda_": 2.0}, (0.4 + 1 + 0.6 + 0.2) / 3),  # a weight of exactly lambda is kept
    "dr_ps": ({"lambda_": 3.0}, (0.4 + 1 + 0.6 + 0.2 + 0.75) / 3),
    "dr_os": ({"lambda_": 4.0}, (0.4 + 0.5 + 0.6 + 0.2 + 16 / 20 * 0.25) / 3),
    "sg_dr": ({"lambda_": 0.5}, (0.4 + 2 / 3 + 0.6 + 0.2 + 0.4) / 3),
    "sn_dr": ({}, 0.4 + 2 / 6.5),
}


def full(n=6, lead=(), seed=0) -> Logged:
    """Data with every field, so that every estimator runs."""
    rng = np.random.default_rng(seed)
    shape = (*lead, n)
    # The target is one policy for all rounds, as the instrumental variable wants it within its stratum.
    mu, pi = rng.dirichlet(np.ones(3), shape), np.broadcast_to([0.2, 0.3, 0.5], (*shape, 3))
    extra = {"feature": rng.normal(size=(*shape, 2)), "feature_pi": rng.normal(size=(*shape, 2))}
    action = np.broadcast_to(np.arange(n) * 2 % 3, shape)
    return logged(
        reward=rng.random(shape), action=action, behavior_dist=0.7 * mu + 0.1, action_dist=pi,
        estimated_rewards_by_reg_model=rng.random((*shape, 3)), log_embedding_weight=rng.normal(size=shape),
        instrument=np.broadcast_to(np.arange(n) >= n // 2 + 1, shape), **extra,
    )  # fmt: skip


def run(name, data, **hyper) -> Estimate:
    return estimator[name].bind(**hyper)(data)


@pytest.mark.parametrize("name", BY_HAND)
def test_three_rounds_by_hand(name):
    hyper, expected = BY_HAND[name]
    assert run(name, HAND, **hyper).value == pytest.approx(expected, abs=1e-14)


def test_every_bandit_estimator_is_computed_by_hand_or_has_its_own_test():
    assert set(BANDIT) == {*BY_HAND, "mips", "mrdr", "instrumental_variable"}


@pytest.mark.parametrize("name", BANDIT)
def test_replicates_are_separate_data_sets(name):
    both = full(lead=(2, 3))
    found = run(name, both)
    for index in np.ndindex(2, 3):
        alone = run(name, Logged(**{field: value[index] for field, value in both.given.items()}))
        assert alone.value.shape == ()
        np.testing.assert_allclose(found.value[index], alone.value, rtol=1e-12)
        np.testing.assert_allclose(found.stderr[index], alone.stderr, rtol=1e-12)
        np.testing.assert_allclose(found.ess[index], alone.ess, rtol=1e-12)


@pytest.mark.parametrize("name", BANDIT)
def test_an_estimator_needs_what_it_promises_and_no_more(name):
    data, needs = full(), estimator[name].promises["needs"]
    required = {"reward_N", "log_w_N", "pscore_N", "target_N"} & ({"reward_N", "log_w_N"} | set(needs))
    if "pscore_N" in needs:
        required |= {"target_N"}
    least = Logged(**{f: v for f, v in data.given.items() if f in required | set(needs)})
    np.testing.assert_allclose(run(name, least).value, run(name, data).value, rtol=1e-12)
    for field in needs:
        refuses(f"'{name}' needs {field}", run, name, replace(data, **{field: None}))


@pytest.mark.parametrize("name", [*PLAIN, *WITH_MODEL])
def test_left_at_its_defaults_an_estimator_is_ips_or_dr(name):
    data, plain = full(20), "dr" if name in WITH_MODEL else "ips"
    np.testing.assert_allclose(run(name, data).value, run(plain, data).value, rtol=1e-13)


@pytest.mark.parametrize("name", [n for n in BANDIT if n not in ("mrdr", "instrumental_variable", "mips")])
def test_promises_of_bias_and_linearity_hold_over_every_data_set(name):
    promises, hyper = estimator[name].promises, BITING.get(name, {})
    for world in map(random_world, WORLDS):
        (one, var_1), (two, var_2) = moments(world, 1, name, **hyper), moments(world, 2, name, **hyper)
        unbiased = max(abs(one - world.law.value), abs(two - world.law.value)) < 1e-12
        linear = abs(one - two) < 1e-12 and abs(var_1 - 2 * var_2) < 1e-12
        assert unbiased == promises["unbiased"]
        assert linear == promises["linear"]


@pytest.mark.parametrize(("name", "hyper", "weight"), FAMILY, ids=[name for name, *_ in FAMILY])
def test_a_linear_estimator_weighs_a_round_as_its_paper_writes(name, hyper, weight):
    """The estimate of one round is E_pi[q] + what(w, mu) (r - q), q the model, or 0 without one."""
    world = random_world(0)
    data, _ = world.data(1)
    w_R, mu_R, reward_R = data.weight_N[:, 0], data.pscore_N[:, 0], data.reward_N[:, 0]
    modelled = name in (*WITH_MODEL, "dm")
    q_R, base_R = (data.q_N[:, 0], data.q_pi_N[:, 0]) if modelled else (0.0, 0.0)
    expected_R = base_R + weight(w_R, mu_R) * (reward_R - q_R)
    np.testing.assert_allclose(estimator[name].bind(**hyper)(data).value, expected_R, rtol=1e-9)


@pytest.mark.parametrize("name", BANDIT)
def test_value_is_the_mean_of_the_terms_and_stderr_their_spread(name):
    data = full(9, lead=(2,), seed=4)
    found = run(name, data, **BITING.get(name, {}))
    if found.terms_N is None:
        assert name == "lse"
        return
    np.testing.assert_allclose(found.terms_N.mean(-1), found.value, rtol=1e-12)
    np.testing.assert_allclose(found.terms_N.std(-1, ddof=1) / 3, found.stderr, rtol=1e-12)


@pytest.mark.parametrize("name", ["snips", "sn_dr", "lse", "instrumental_variable"])
def test_the_delta_methods_terms_are_the_derivatives_by_a_rounds_share(name):
    # Repeating round i among 2000 copies of the data moves the value by (term_i - value) / 2000 n.
    data, hyper = full(12, seed=2), {"lambda_": -0.7} if name == "lse" else {}
    value = run(name, data, **hyper).value
    copies = np.tile(np.arange(12), 2000)
    moves = np.array([run(name, data.take(np.append(copies, i)), **hyper).value for i in range(12)]) - value
    spread = (moves * 24001).std(ddof=1) / math.sqrt(12)
    assert run(name, data, **hyper).stderr == pytest.approx(spread, rel=2e-3)


def test_ess_counts_the_weights_on_rewards():
    assert run("ips", HAND).ess == pytest.approx(6.5**2 / (4 + 0.25 + 16))
    assert run("clipped_ips", HAND, lambda_=1.0).ess == pytest.approx(2.5**2 / 2.25)
    assert run("snips", HAND).ess == pytest.approx(run("ips", HAND).ess)
    assert math.isnan(run("dm", HAND).ess)
    assert kish_ess(np.ones((2, 5))).tolist() == [5.0, 5.0]


def test_the_standard_error_divides_by_n_minus_one_and_needs_two():
    assert standard_error(np.array([1.0, 3.0])) == pytest.approx(1.0)
    assert np.isnan(mean_of_terms(np.ones((2, 1)), np.ones((2, 1))).stderr).all()


def test_costs_are_smoothed_like_rewards_with_the_sign_turned():
    data = full()
    gain = run("log_smoothing", data, lambda_=0.7).value
    cost = run("log_smoothing", replace(data, reward_N=-data.reward_N), lambda_=0.7).value
    assert cost == pytest.approx(-gain)
    assert gain < run("ips", data).value
    most = replace(data, reward_N=data.reward_N - data.reward_N.max())  # a cost of 0 is one
    assert run("log_smoothing", most, lambda_=0.7).value < 0
    with pytest.raises(UserError, match="rewards >= 0 or costs <= 0"):
        run("log_smoothing", replace(data, reward_N=data.reward_N - 0.5), lambda_=0.7)


def data_of(world, index) -> Logged:
    return logged(
        reward=world.reward_K[index],
        action=world.action_K[index],
        behavior_dist=world.law.mu_SA[world.context_K[index]],
        action_dist=world.law.pi_SA[world.context_K[index]],
    )


def test_mrdr_fits_the_model_of_least_variance():
    # Rewards are linear in the one-hot features: the best model leaves q(x, pi) = V as every term.
    world = two_arms()
    index = np.repeat(np.arange(2), [3, 1])
    data = replace(
        data_of(world, index), feature_ND=np.eye(2)[index], feature_pi_ND=np.tile([0.25, 0.75], (4, 1))
    )
    np.testing.assert_allclose(run("mrdr", data, folds=1).terms_N, 0.75, atol=1e-12)
    refuses("folds is 5, expected 1 to 4", run, "mrdr", data, folds=5)


def test_mrdr_never_corrects_a_round_with_a_model_that_saw_it():
    data = full(10, seed=5)
    found = run("mrdr", data, folds=2)
    bumped = replace(data, reward_N=data.reward_N + 10 * (np.arange(10) == 2))
    moved = run("mrdr", bumped, folds=2).terms_N - found.terms_N
    assert np.abs(np.delete(moved[:5], 2)).max() == 0  # its own fold does not hear of it
    assert moved[2] == pytest.approx(10 * data.weight_N[2])
    assert np.abs(moved[5:]).max() > 1e-3


def test_marginal_weights_sum_over_the_actions_that_show_the_embedding():
    mu, pi = np.array([[0.5, 0.25, 0.25]]), np.array([[0.1, 0.3, 0.6]])
    shown = {"action_dist": pi, "behavior_dist": mu, "p_e_a": [[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]]}
    assert np.exp(embedding_log_weight(embedding=[0], **shown)) == pytest.approx(0.7 / 0.875)
    assert np.exp(embedding_log_weight(embedding=[1], **shown)) == pytest.approx(2.4)
    refuses("embedding is 2 to 2; p_e_a has 2", embedding_log_weight, embedding=[2], **shown)
    never = {**shown, "behavior_dist": np.array([[0.5, 0.5, 0.0]])}
    refuses(r"never shows the embedding logged in round \[0\]", embedding_log_weight, embedding=[1], **never)
    assert embedded(0, direct=False).mips_bias_formula() == pytest.approx(0, abs=1e-15)
    data = full()
    assert run("mips", data).value == pytest.approx((np.exp(data.embedding_log_w_N) * data.reward_N).mean())


def instrumented(strata=1, lead=()) -> Logged:
    """30 rounds per stratum, with both instruments and both actions in each; one target per stratum."""
    rng = np.random.default_rng(8)
    n = 30 * strata
    context = np.arange(n) % strata
    z = np.arange(n) // strata % 2
    action = (rng.random((*lead, n)) < 0.2 + 0.6 * z).astype(int)
    pi = np.array([[0.3, 0.7], [0.9, 0.1], [0.0, 1.0]])[context]
    shape = (*lead, n)
    return logged(
        reward=rng.random(shape), action=action, pscore=np.full(shape, 0.5),
        action_dist=np.broadcast_to(pi, (*shape, 2)), instrument=np.broadcast_to(z, shape),
        context=np.broadcast_to(context, shape),
    )  # fmt: skip


def test_the_instrumental_estimate_is_walds_ratio_weighted_over_strata():
    data = instrumented(3)
    expected = 0.0
    for context, pi in enumerate(((0.3, 0.7), (0.9, 0.1), (0.0, 1.0))):
        for action in (0, 1):
            rows = [(data.context_N == context) & (data.instrument_N == z) for z in (0, 1)]
            took = data.action_N == action
            earned = [(data.reward_N * took)[row].mean() for row in rows]
            share = [took[row].mean() for row in rows]
            expected += pi[action] * (earned[1] - earned[0]) / (share[1] - share[0]) / 3
    assert run("instrumental_variable", data).value == pytest.approx(expected)


def test_labels_of_strata_may_leave_gaps():
    data = instrumented(3)
    apart = replace(data, context_N=2 * data.context_N)
    assert run("instrumental_variable", apart).value == run("instrumental_variable", data).value


def test_an_instrument_that_identifies_nothing_is_refused():
    data = instrumented()
    idle = replace(data, instrument_N=1 - np.arange(30) // 15, action_N=np.arange(30) % 15 % 2)
    refuses("does not move action 0 in stratum 0", run, "instrumental_variable", idle)
    with pytest.raises(UserError, match="no round with instrument 0"):
        run("instrumental_variable", replace(data, instrument_N=np.ones(30, dtype=int)))
    with pytest.raises(UserError, match="other values than 0 and 1"):
        run("instrumental_variable", replace(data, instrument_N=np.full(30, 2)))
    refuses("varies within a stratum", run, "instrumental_variable", replace(instrumented(3), context_N=None))
    once = np.array(data.action_dist_NA)
    once[0] += [3e-9, -3e-9]  # in one round of thirty
    refuses("varies within a stratum", run, "instrumental_variable", replace(data, action_dist_NA=once))
    refuses("negative labels", run, "instrumental_variable", replace(data, context_N=-np.ones(30, dtype=int)))


@pytest.mark.parametrize(
    ("name", "hyper"),
    [("clipped_ips", {"lambda_": -1.0}), ("propensity_clipped_ips", {"tau": 1.5}),
     ("exponential_smoothing", {"alpha": 1.1}), ("power_of_ratio", {"alpha": -0.1}), ("ix", {"gamma": -0.1}),
     ("subgaussian_ips", {"lambda_": 1.1}), ("log_smoothing", {"lambda_": -0.1}), ("lse", {"lambda_": 0.1}),
     ("switch_dr", {"lambda_": -1.0}), ("dr_ps", {"lambda_": -1.0}), ("dr_os", {"lambda_": math.nan}),
     ("sg_dr", {"lambda_": -1.0}), ("mrdr", {"folds": 0})],
)  # fmt: skip
def test_a_hyperparameter_out_of_range_is_refused(name, hyper):
    refuses(f"{next(iter(hyper))} is", run, name, full(), **hyper)


def test_weights_from_probabilities_and_from_log_weights_agree():
    data = full()
    other = logged(reward=data.reward_N, log_weight=data.log_w_N, pscore=data.pscore_N)
    for name in (*PLAIN, "snips"):
        np.testing.assert_allclose(
            run(name, other, **BITING.get(name, {})).value,
            run(name, data, **BITING.get(name, {})).value,
            rtol=1e-13,
        )


def test_an_action_that_the_target_never_takes_has_weight_zero():
    data = logged(reward=[1.0, 3.0], action=[0, 1], pscore=[0.5, 0.5], action_dist=[[0.0, 1.0]] * 2)
    assert data.log_w_N[0] == -np.inf
    refuses("sum to 0", normalized, np.array([[0.0, 0.0], [-np.inf, -np.inf]]))  # one data set of two
    assert mean_product(np.array([[np.inf], [1.0]]), np.ones((2, 1))) is None  # one sum of two
    assert run("snips", data).value == 3.0
    assert run("ips", data).value == 3.0
    assert run("subgaussian_ips", data, lambda_=0.5).value == pytest.approx((0 + 2 / 1.5 * 3) / 2)
    assert run("power_of_ratio", data, alpha=0.0).value == 1.5
    model = replace(data, q_N=np.zeros(2), q_pi_N=np.zeros(2))
    assert run("dr_os", model, lambda_=4.0).value == pytest.approx(4 * 2 / 8 * 3 / 2)


def test_log_weights_beyond_the_largest_number_are_normalized_or_clipped_but_not_summed():
    data = logged(reward=[1.0, 2.0, 3.0], log_weight=[800.0, 800.0, 790.0])
    # Weights 1, 1, e^-10 after division by the largest.
    assert run("snips", data).value == pytest.approx((3 + 3 * math.exp(-10)) / (2 + math.exp(-10)))
    assert run("clipped_ips", data, lambda_=5.0).value == 10.0
    assert run("subgaussian_ips", data, lambda_=0.5).value == 4.0
    data = replace(data, q_N=np.ones(3), q_pi_N=np.ones(3), reward_N=np.array([0.0, 1.0, 2.0]))
    for name, hyper in (
        ("ips", {}), ("dr", {}), ("log_smoothing", {"lambda_": 1.0}), ("lse", {"lambda_": -1.0}),
    ):  # fmt: skip
        refuses("its exponential overflows", run, name, data, **hyper)


GOOD = {"reward": [1.0, 0.0], "action": [0, 1], "pscore": [0.5, 0.5], "action_dist": [[0.4, 0.6]] * 2}


@pytest.mark.parametrize(
    "change",
    [{"reward": 1.0}, {"reward": [1.0, np.nan]}, {"pscore": [0.5, 0.0]}, {"pscore": [-0.1, 0.5]},
     {"pscore": [0.5, 1.5]}, {"pscore": [0.5]}, {"pscore": None}, {"action": [0, 2]},
     {"action": [0.0, 1.0]}, {"action_dist": [[0.4, 0.7]] * 2}, {"action_dist": [[-0.1, 1.1]] * 2},
     {"action_dist": [[0.4, 0.6]]}, {"action_dist": None}, {"behavior_dist": [[0.5, 0.5], [0.0, 1.0]]},
     {"estimated_rewards_by_reg_model": [[1.0], [1.0]]}, {"position": [0, 0]}, {"feature": [1.0, 2.0]},
     {"instrument": [1]}, {"log_embedding_weight": [np.inf, 0.0]}],
)  # fmt: skip
def test_bad_data_are_refused_with_one_sentence(change):
    refuses(".", logged, **{**GOOD, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [({"instrument": [0.0, 1.7]}, "instrument holds a number that is not whole"),
     ({"context": [0.5, 1.0]}, "context holds a number that is not whole"),
     ({"log_weight": [0.0, 0.0]}, "leave one out"),
     ({"action": None, "log_weight": [0.0, 0.0], "estimated_rewards_by_reg_model": [[0.0, 1.0]] * 2},
      "needs action and action_dist")],
)  # fmt: skip
def test_nothing_that_is_given_is_ignored(change, message):
    refuses(message, logged, **{**GOOD, **change})


def test_weights_that_sum_to_zero_have_no_self_normalized_estimate():
    data = logged(reward=[1.0, 2.0], log_weight=[-np.inf, -np.inf])
    refuses("sum to 0", run, "snips", data)
    assert run("ips", data).value == 0


# Conditions under which an estimator is unbiased, as docs/estimators.md names them


def test_data_sets_share_a_mean_weight_only_if_each_has_one():
    data = Logged(
        reward_N=np.ones((2, 2)), pscore_N=np.full((2, 2), 0.5), target_N=np.array([[0, 0], [0.5, 0.5]])
    )
    assert data.mean_weight is None


def test_a_weight_that_is_infinite_or_no_number_is_refused():
    check_weights(np.array([0.0, 1e308]))
    for odd in (math.inf, math.nan):
        refuses("mu gives a logged action no probability", logged, reward=[1.0], log_weight=[odd])
        refuses("A log-weight exceeds 709", check_weights, np.array([1.0, odd]))
