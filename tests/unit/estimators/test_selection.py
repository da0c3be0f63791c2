"""Selection metrics: exact cases of ranking, risk and return."""

import math

import numpy as np
import pytest
from scipy import stats

from testbed.errors import UserError
from testbed.estimators import selection as s

TRUE = np.array([1.0, 2.0, 3.0, 4.0])
GOOD = np.array([1.1, 1.9, 3.1, 3.9])


def test_equal_errors_may_carry_opposite_risks():
    # Off by 0.1 on both policies, one overrating the better, the other the worse.
    true, safe, risky = [0.55, 0.45], [0.65, 0.35], [0.45, 0.55]
    assert s.mean_squared_error(safe, true) == pytest.approx(0.01)
    assert s.mean_squared_error(risky, true) == pytest.approx(0.01)
    assert s.regret_at_k(safe, true) == 0
    assert s.regret_at_k(risky, true) == pytest.approx(0.1)
    assert (s.rank_correlation(safe, true), s.rank_correlation(risky, true)) == (1, -1)


def test_adding_a_constant_to_all_estimates_changes_the_error_alone():
    assert s.mean_squared_error(GOOD + 5, TRUE) > 20
    for score in (
        lambda e: s.rank_correlation(e, TRUE),
        lambda e: s.regret_at_k(e, TRUE, k=2),
        lambda e: s.sharpe_ratio_at_k(e, TRUE, k=2, baseline=0.5),
    ):
        assert score(GOOD + 5) == score(GOOD)


def test_with_all_policies_chosen_every_estimator_has_the_same_sharpe_ratio():
    estimates = np.random.default_rng(0).normal(size=(50, 4))
    assert np.ptp(s.sharpe_ratio_at_k(estimates, TRUE, k=4, baseline=1.0)) < 1e-14
    assert s.sharpe_ratio_at_k(TRUE, TRUE, k=4, baseline=1.0) == pytest.approx(3 / math.sqrt(5 / 3))


def test_the_sharpe_ratio_by_hand_and_its_two_denominators():
    # Top two by estimate: true values 1 and 4; sample deviation 3/sqrt(2), population 3/2.
    estimated = np.array([9.0, 1.0, 2.0, 8.0])
    assert s.sharpe_ratio_at_k(estimated, TRUE, k=2, baseline=2.0) == pytest.approx(2 * math.sqrt(2) / 3)
    assert s.sharpe_ratio_at_k(estimated, TRUE, k=2, baseline=2.0, ddof=0) == pytest.approx(4 / 3)
    assert s.sharpe_ratio_at_k(estimated, TRUE, k=2, baseline=5.0) < 0
    with pytest.raises(UserError, match="k > ddof"):
        s.sharpe_ratio_at_k(estimated, TRUE, k=1, baseline=2.0)
    flat = np.full(3, 0.1)
    assert s.sharpe_ratio_at_k([3.0, 2.0, 1.0], flat, k=3, baseline=0.0) == math.inf
    assert math.isnan(s.sharpe_ratio_at_k([3.0, 2.0, 1.0], flat, k=3, baseline=0.1))


def test_rank_correlation_is_spearmans_with_ties():
    rng = np.random.default_rng(1)
    estimated, true = rng.integers(0, 5, size=(2, 20, 8)).astype(float)
    theirs = [stats.spearmanr(a, b).statistic for a, b in zip(estimated, true, strict=True)]
    np.testing.assert_allclose(s.rank_correlation(estimated, true), theirs, rtol=1e-12)
    assert s.rank_correlation(-TRUE, TRUE) == -1
    assert math.isnan(s.rank_correlation(np.ones(4), TRUE))


def test_regret_falls_with_k_and_ties_go_to_the_first():
    estimated = np.array([9.0, 1.0, 8.0, 2.0])
    assert [float(s.regret_at_k(estimated, TRUE, k=k)) for k in (1, 2, 3, 4)] == [3, 1, 0, 0]
    assert s.top_values(np.zeros(4), TRUE, k=2).tolist() == [1, 2]
    assert s.top_values(estimated, TRUE, k=3).tolist() == [1, 3, 4]


def test_safety_errors_are_shares_of_the_safe_and_of_the_unsafe():
    estimated = np.array([3.0, 1.0, 2.0, 9.0])  # at threshold 3: safe truly are the last two
    assert s.type_one_error(estimated, TRUE, threshold=3.0) == 0.5
    assert s.type_two_error(estimated, TRUE, threshold=3.0) == 0.5
    assert s.type_two_error(estimated - 0.5, TRUE, threshold=3.0) == 0
    assert math.isnan(s.type_one_error(estimated, TRUE, threshold=100.0))
    assert math.isnan(s.type_two_error(estimated, TRUE, threshold=0.0))


def test_relative_error_is_a_share_of_the_value():
    assert s.relative_error([1.5, -3.0], [1.0, -2.0]).tolist() == [0.5, 0.5]
    with pytest.raises(UserError, match="true value is 0"):
        s.relative_error([1.0], [0.0])


def test_scores_take_leading_axes():
    estimated = np.random.default_rng(2).random((3, 2, 5))
    true = np.arange(5.0)
    for score in (
        s.mean_squared_error,
        s.rank_correlation,
        lambda e, t: s.regret_at_k(e, t, k=2),
        lambda e, t: s.sharpe_ratio_at_k(e, t, k=2, baseline=0.0),
        lambda e, t: s.type_one_error(e, t, threshold=0.5),
    ):
        assert score(estimated, true).shape == (3, 2)
        np.testing.assert_allclose(score(estimated, true)[1, 0], score(estimated[1, 0], true))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: s.regret_at_k(TRUE, TRUE, k=0), "k is 0, expected 1 to 4"),
        (lambda: s.regret_at_k(TRUE, TRUE, k=5), "k is 5"),
        (lambda: s.mean_squared_error(TRUE, TRUE[:3]), "Estimates have shape"),
        (lambda: s.rank_correlation([1.0, np.nan], [1.0, 2.0]), "NaN and has no rank"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(UserError, match=message):
        call()
