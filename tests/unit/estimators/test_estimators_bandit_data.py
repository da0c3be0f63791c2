"""Logged rounds: weights from probabilities or logarithms, weights of 0 and beyond e^700, bad input."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from test_estimators_bandit import BITING, PLAIN, full, run

from testbed.errors import UserError
from testbed.estimators.bandit import logged


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
        ("ips", {}),
        ("dr", {}),
        ("log_smoothing", {"lambda_": 1.0}),
        ("lse", {"lambda_": -1.0}),
    ):
        with pytest.raises(UserError, match="its exponential overflows"):
            run(name, data, **hyper)


GOOD = {"reward": [1.0, 0.0], "action": [0, 1], "pscore": [0.5, 0.5], "action_dist": [[0.4, 0.6]] * 2}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": 1.0}, r"reward has shape \(\)"),
        ({"reward": [1.0, np.nan]}, "reward is not finite"),
        ({"pscore": [0.5, 0.0]}, r"pscore is 0 in round \[1\]; expected above 0"),
        ({"pscore": [-0.1, 0.5]}, r"pscore is -0.1 in round \[0\]"),
        ({"pscore": [0.5, 1.5]}, "pscore is 1.5"),
        ({"pscore": [0.5]}, r"pscore_N has shape \(1,\)"),
        ({"pscore": None}, "give pscore or behavior_dist"),
        ({"action": [0, 2]}, "action is 0 to 2; action_dist has 2 actions"),
        ({"action": [0.0, 1.0]}, "expected integers"),
        ({"action_dist": [[0.4, 0.7]] * 2}, "not probabilities"),
        ({"action_dist": [[-0.1, 1.1]] * 2}, "not probabilities"),
        ({"action_dist": [[0.4, 0.6]]}, "action_dist has shape"),
        ({"action_dist": None}, "Give log_weight, or action"),
        ({"behavior_dist": [[0.5, 0.5], [0.0, 1.0]]}, r"action 0 probability 0 in round \[1\]"),
        ({"estimated_rewards_by_reg_model": [[1.0], [1.0]]}, "estimated_rewards_by_reg_model has shape"),
        ({"position": [0, 0]}, "no argument"),
        ({"feature": [1.0, 2.0]}, "feature_ND has shape"),
        ({"instrument": [1]}, "instrument_N has shape"),
        ({"log_embedding_weight": [np.inf, 0.0]}, "embedding_log_w_N is"),
    ],
)
def test_bad_data_are_refused_with_one_sentence(change, message):
    with pytest.raises(UserError, match=message):
        logged(**{**GOOD, **change})


def test_infinite_log_weights_are_refused():
    for weight in (np.inf, np.nan):
        with pytest.raises(UserError, match="mu gives a logged action no probability"):
            logged(reward=[1.0], log_weight=[weight])


def test_weights_that_sum_to_zero_have_no_self_normalized_estimate():
    data = logged(reward=[1.0, 2.0], log_weight=[-np.inf, -np.inf])
    with pytest.raises(UserError, match="sum to 0"):
        run("snips", data)
    assert run("ips", data).value == 0


# Conditions under which an estimator is unbiased, as docs/estimators.md names them


def test_without_overlap_ips_misses_what_the_behavior_never_does():
    mu_A, pi_A, reward_A = np.array([0.5, 0.5, 0.0]), np.array([0.25, 0.25, 0.5]), np.array([1.0, 0.6, 0.8])
    mean = 0.0
    for a in (0, 1):
        data = logged(reward=reward_A[[a]], action=[a], pscore=mu_A[[a]], action_dist=pi_A[None])
        mean += mu_A[a] * float(run("ips", data).value)
    assert mean == pytest.approx(pi_A @ reward_A - 0.5 * 0.8)


def test_a_model_fitted_on_the_rounds_that_it_corrects_makes_dr_biased():
    mu_A, pi_A, reward_A = np.array([0.5, 0.5]), np.array([0.2, 0.8]), np.array([0.0, 1.0])

    def mean(fitted):
        total = 0.0
        for action in itertools.product(range(2), repeat=2):
            a_N = np.array(action)
            # An action that was not logged counts as the mean of those that were.
            model_A = np.array([reward_A[a] if a in action else reward_A[a_N].mean() for a in range(2)])
            model_NA = np.tile(model_A if fitted else np.array([0.3, 0.1]), (2, 1))
            data = logged(
                reward=reward_A[a_N],
                action=a_N,
                pscore=mu_A[a_N],
                action_dist=np.tile(pi_A, (2, 1)),
                estimated_rewards_by_reg_model=model_NA,
            )
            total += mu_A[a_N].prod() * float(run("dr", data).value)
        return total

    assert mean(fitted=False) == pytest.approx(pi_A @ reward_A)
    # Both actions are seen with chance 1/2; a sample of one action alone says its reward.
    assert mean(fitted=True) == pytest.approx(0.5 * 0.8 + 0.25 * 0.0 + 0.25 * 1.0)
