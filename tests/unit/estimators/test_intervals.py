"""Intervals for estimated values: written out by hand, exact coverage by counting, and bad input.

Selection metrics: exact cases of ranking, risk and return.
"""

import math
import tracemalloc

import numpy as np
import pytest
from scipy import stats
from support.refusals import refuses

from testbed.estimators import intervals
from testbed.estimators import selection as s
from testbed.estimators.intervals import (
    betting,
    bootstrap,
    empirical_bernstein,
    hcope,
    hoeffding,
    log_smoothing_bound,
    student,
)

X = np.array([0.0, 0.5, 1.0, 2.5])
S2 = float(X.var(ddof=1))


@pytest.mark.parametrize(("side", "error"), [("two", 0.05), ("lower", 0.1), ("upper", 0.1)])
def test_radii_by_hand(side, error):
    # delta is halved for two sides, whole for one.
    radii = {
        "hoeffding": 3 * math.sqrt(math.log(1 / error) / 8),
        "bernstein": math.sqrt(2 * S2 * math.log(2 / error) / 4) + 7 * 3 * math.log(2 / error) / 9,
        "student": stats.t(3).ppf(1 - error) * math.sqrt(S2 / 4),
    }
    found = {
        "hoeffding": hoeffding(X, low=0, high=3, level=0.9, side=side),
        "bernstein": empirical_bernstein(X, low=0, high=3, level=0.9, side=side),
        "student": student(X, level=0.9, side=side),
    }
    for name, radius in radii.items():
        low = 1 - radius if side != "upper" else -np.inf
        high = 1 + radius if side != "lower" else np.inf
        assert (found[name].low, found[name].high) == pytest.approx((low, high), abs=1e-12)
        assert found[name].level == 0.9


def test_intervals_take_leading_axes():
    rng = np.random.default_rng(0)
    x = rng.random((2, 3, 50))
    known = {"low": 0.0, "high": 1.0}
    for make in (
        lambda t: hoeffding(t, **known),
        lambda t: empirical_bernstein(t, **known),
        lambda t: betting(t, **known),
        student,
        hcope,
        lambda t: bootstrap(t, resamples=99),
    ):
        found, alone = make(x), make(x[1, 2])
        assert found.low.shape == (2, 3)
        assert [found.low[1, 2], found.high[1, 2]] == pytest.approx([float(alone.low), float(alone.high)])
        assert (found.low <= x.mean(-1)).all()


def test_hcope_is_the_published_formula_with_equal_thresholds():
    x, c, delta = np.array([0.2, 3.0, 0.0, 1.0, 9.0]), 2.0, 0.05
    y, n = np.minimum(x, c), 5
    log = math.log(2 / delta)
    squares = sum((a / c - b / c) ** 2 for a in y for b in y)
    published = ((y / c).sum() - 7 * n * log / (3 * (n - 1)) - math.sqrt(log / (n - 1) * squares)) / (n / c)
    found = hcope(x, threshold=c)
    assert found.low == pytest.approx(published)
    assert found.high == np.inf


def test_hcope_chooses_its_threshold_from_terms_that_it_then_leaves_out():
    rng = np.random.default_rng(1)
    x = rng.exponential(size=400)
    later = x.copy()
    later[20:] = np.minimum(later[20:], x[:20].max())  # what lies above any candidate is cut anyway
    assert hcope(x).low == hcope(later).low
    first = x[:20]
    log, best = math.log(40), -math.inf
    for c in first:
        y = np.minimum(first, c)
        bound = y.mean() - math.sqrt(2 * y.var(ddof=1) * log / 380) - 7 * c * log / (3 * 379)
        if bound > best:
            best, threshold = bound, float(c)
    assert hcope(x).low == hcope(x[20:], threshold=threshold).low


def test_hcope_holds_few_truncated_terms_at_once(monkeypatch):
    """500 candidates times 500 terms are 2 MB a data set; a million terms would ask for 20 GB."""
    x, whole = np.random.default_rng(2).exponential(size=(2, 10_000)), []
    for cells in (2**22, 2**12):
        monkeypatch.setattr(intervals, "CELLS", cells)
        tracemalloc.start()
        whole.append((hcope(x).low, tracemalloc.get_traced_memory()[1]))
        tracemalloc.stop()
    assert np.array_equal(whole[0][0], whole[1][0])
    assert whole[1][1] < 2**21 < whole[0][1]


def test_the_betting_interval_holds_the_means_that_it_cannot_get_rich_against():
    # Against the ends of the interval the wealth reaches 2/alpha = 40 just once, inside it never.
    from testbed.estimators.intervals import bets, log_wealth

    x = np.random.default_rng(2).random(60) ** 2
    found, bet = betting(x, low=0, high=1), bets(x, 0.05)
    for mean, sign in ((found.low, 1.0), (found.high, -1.0)):
        assert log_wealth(x, mean, bet, sign).max() == pytest.approx(math.log(40), abs=1e-6)
        assert log_wealth(x, mean + 0.01 * sign, bet, sign).max() < math.log(40)


def test_bets_depend_on_the_past_alone():
    from testbed.estimators.intervals import bets

    x = np.random.default_rng(3).random(20)
    changed = x.copy()
    changed[10:] = 0.9
    assert (bets(x, 0.1) == bets(changed, 0.1)).tolist() == [True] * 11 + [False] * 9


def test_the_bootstrap_of_a_mean_is_scipys():
    x = np.random.default_rng(5).exponential(size=30)
    found = bootstrap(x, resamples=500, seed=7, level=0.9)
    theirs = stats.bootstrap(
        (x,), np.mean, n_resamples=500, confidence_level=0.9, rng=np.random.default_rng(7)
    ).confidence_interval
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), rel=1e-9)
    refuses("level is 1.5", bootstrap, x, level=1.5)
    refuses("level is 0", bootstrap, [1.0, 1.0], level=0.0)


def test_the_bootstrap_interval_of_equal_terms_is_a_point_and_of_weights_a_ratios():
    assert bootstrap(np.full(5, 2.0)).low == bootstrap(np.full(5, 2.0)).high == 2.0
    x, log_w = np.array([1.0, 1.0, 5.0] * 8), np.array([0.0, -1.0, -np.inf] * 8)
    weightless = bootstrap(x, log_w, resamples=200)  # the rewards that differ have no weight
    assert (weightless.low, weightless.high) == (1.0, 1.0)
    rng = np.random.default_rng(6)
    x, log_w = rng.random(40), rng.normal(size=40)
    found = bootstrap(x, log_w, resamples=400)
    scaled = bootstrap(x, log_w + 700, resamples=400)
    assert (found.low, found.high) == pytest.approx((scaled.low, scaled.high), rel=1e-9)
    assert x.min() < found.low < np.average(x, weights=np.exp(log_w)) < found.high < x.max()


def test_the_log_smoothing_bound_needs_no_upper_bound_on_weights_and_is_never_negative():
    value = math.log1p(0.5 * 4.0) / 0.5
    assert log_smoothing_bound(value, lambda_=0.5, n=10, level=0.9) == pytest.approx((3 * 0.1**0.1 - 1) / 0.5)
    assert log_smoothing_bound(0.0, lambda_=0.5, n=10) == 0


@pytest.mark.parametrize(
    "call",
    [lambda: hoeffding([0.0, 1.2], low=0, high=1), lambda: betting([-0.1, 1.0], low=0, high=1),
     lambda: hoeffding([0.0, 1.0], low=1, high=1),
     lambda: empirical_bernstein([0.0, 1.0], low=0, high=np.inf),
     lambda: empirical_bernstein([0.5], low=0, high=1), lambda: student([1.0]),
     lambda: student([1.0, np.nan]), lambda: student([1.0, 2.0], level=95),
     lambda: student([1.0, 2.0], side="both"), lambda: hcope([-1.0, 2.0]),
     lambda: hcope([1.0, 2.0], threshold=0.0), lambda: hcope([1.0, 2.0, 1.0]),
     lambda: bootstrap([1.0, 2.0], [0.0]), lambda: log_smoothing_bound(1.0, lambda_=0.0, n=5),
     lambda: bootstrap([1.0, 2.0, 3.0], [0.0, 0.0, -np.inf], resamples=999)],
)  # fmt: skip
def test_bad_input_is_refused_with_one_sentence(call):
    refuses(".", call)


TRUE = np.array([1.0, 2.0, 3.0, 4.0])


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


def test_scores_take_leading_axes():
    estimated = np.random.default_rng(2).random((3, 2, 5))
    true = np.arange(5.0)
    for score in (s.mean_squared_error, s.rank_correlation, lambda e, t: s.regret_at_k(e, t, k=2)):
        assert score(estimated, true).shape == (3, 2)
        np.testing.assert_allclose(score(estimated, true)[1, 0], score(estimated[1, 0], true))


@pytest.mark.parametrize(
    "call",
    [lambda: s.regret_at_k(TRUE, TRUE, k=0), lambda: s.regret_at_k(TRUE, TRUE, k=5),
     lambda: s.mean_squared_error(TRUE, TRUE[:3]), lambda: s.rank_correlation([1.0, np.nan], [1.0, 2.0]),
     lambda: s.rank_correlation([1.0, 2.0], [1.0, np.nan])],
)  # fmt: skip
def test_bad_input_is_refused(call):
    refuses(".", call)
