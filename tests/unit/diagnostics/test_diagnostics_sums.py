"""Sums of weights: shards add up to the whole, nothing overflows; how optimistic N samples are, exactly."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from support.refusals import refuses

from testbed.diagnostics.ratio_metrics import ess
from testbed.diagnostics.weight_sums import HOW, WeightSums, expected_share

LOG_W = np.random.default_rng(5).normal(0.3, 1.5, (3, 60))
SHARES = tuple(lambda s, how=how: s.ess(how) for how in ("kish", "perplexity", "max"))
QUANTITIES = (
    *(lambda s, how=how: s.ess(how) for how in HOW),
    *(WeightSums.chi2, WeightSums.excess_kurtosis),
    *(WeightSums.max_share, WeightSums.floor, WeightSums.kl),
)


@pytest.mark.parametrize("cuts", [(20, 40), (1, 59), (0, 60), (59, 59)])
def test_shards_add_up_to_the_whole_in_every_order(cuts):
    whole = WeightSums.of(LOG_W)
    shards = [WeightSums.of(part) for part in np.split(LOG_W, cuts, axis=-1)]
    for order in itertools.permutations(shards):
        np.testing.assert_allclose(sum(order).to_array(), whole.to_array(), rtol=1e-13, atol=1e-13)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.lists(st.floats(-1e4, 1e4), min_size=2, max_size=12), st.data())
def test_adding_is_associative_at_any_magnitude(log_w, data):
    cut = data.draw(st.integers(1, len(log_w) - 1))
    first, second = WeightSums.of(log_w[:cut]), WeightSums.of(log_w[cut:])
    whole = WeightSums.of(log_w)
    for added in (first + second, second + first):
        np.testing.assert_allclose(added.to_array(), whole.to_array(), rtol=1e-12, atol=1e-9)
        assert np.isfinite(added.ess("kish"))


def test_the_sums_travel_as_an_array():
    sums = WeightSums.of(LOG_W)
    assert sums.to_array().shape == (3, 7)
    again = WeightSums.from_array(sums.to_array())
    for quantity in QUANTITIES:
        np.testing.assert_array_equal(quantity(again), quantity(sums))
    refuses(r"expected \[\.\.\., 7\]", WeightSums.from_array, np.zeros((3, 6)))


def test_the_shares_are_those_of_the_batch_diagnostics():
    mask = np.random.default_rng(1).random(LOG_W.shape) < 0.7
    for how in ("kish", "perplexity", "max"):
        expected = ess(torch.tensor(LOG_W), torch.tensor(mask), how)
        np.testing.assert_allclose(WeightSums.of(LOG_W, mask).ess(how), expected, rtol=1e-13)


def test_the_moments_are_those_of_the_textbook():
    w = np.exp(LOG_W)
    sums = WeightSums.of(LOG_W)
    np.testing.assert_allclose(sums.excess_kurtosis(), stats.kurtosis(w, axis=-1), rtol=1e-9)
    np.testing.assert_allclose(sums.chi2(), (w**2).mean(-1) - 1, rtol=1e-12)
    np.testing.assert_allclose(sums.max_share(), w.max(-1) / w.sum(-1), rtol=1e-13)
    np.testing.assert_allclose(sums.ess("kong"), 1 / (1 + w.var(-1)), rtol=1e-12)
    p = w / w.sum(-1, keepdims=True)
    np.testing.assert_allclose(sums.kl(), (p * np.log(60 * p)).sum(-1), rtol=1e-12)


@pytest.mark.parametrize("size", [12345.678, -1e6, 1e6])
def test_the_size_of_logarithms_costs_no_digit(size):
    equal = np.full(50, size)
    for how in ("kish", "perplexity", "max"):
        for sums in (WeightSums.of(equal), sum(WeightSums.of(part) for part in np.split(equal, 5))):
            assert sums.ess(how) == pytest.approx(1.0, abs=1e-12)
            assert sums.kl() == pytest.approx(0.0, abs=1e-12)
        assert float(ess(torch.tensor(equal), how=how)) == pytest.approx(1.0, abs=1e-12)
    # A power of two, so that adding the size rounds nothing.
    shift = math.copysign(2.0**20, size)
    log_w = np.round(LOG_W * 2**20) / 2**20
    there, here = WeightSums.of(log_w + shift), WeightSums.of(log_w)
    for quantity in (*SHARES, WeightSums.kl, WeightSums.max_share, WeightSums.excess_kurtosis):
        np.testing.assert_allclose(quantity(there), quantity(here), rtol=1e-12)


def test_clamped_weights_are_bounded_themselves_and_not_in_their_logarithm():
    # Weights 1/3, 1/3, 1/3, 3, the last one bounded by 2: (1 + 2)^2 / (4 (3/9 + 4)).
    log_w = np.log([1 / 3, 1 / 3, 1 / 3, 3.0])
    assert WeightSums.of(log_w, upper=2.0).ess("kish") == pytest.approx(27 / 52, abs=1e-15)
    refuses("expected a positive bound", WeightSums.of, log_w, upper=0.0)


def test_zero_weights_count_as_samples_and_weigh_nothing():
    sums = WeightSums.of([-np.inf, 0.0, -np.inf, 0.0])
    assert [float(sums.ess(how)) for how in ("kish", "perplexity", "max")] == pytest.approx([0.5] * 3)
    assert float(sums.floor()) == 0.25


def test_equal_weights_have_no_kurtosis_worth_a_digit():
    assert np.isnan(WeightSums.of(np.zeros(9)).excess_kurtosis())
    assert np.isnan(WeightSums.of(1e-4 * LOG_W).excess_kurtosis()).all()


@pytest.mark.parametrize("log_w", [[0.0, np.nan], [np.inf, 0.0, np.inf], [-np.inf, -np.inf], []])
def test_weights_that_mean_nothing_are_refused(log_w):
    refuses(".", lambda: WeightSums.of(log_w).ess())


def test_an_unknown_ess_is_named():
    refuses("Did you mean 'kish'", WeightSums.of([0.0]).ess, "kisch")


# What N samples can say


def test_the_expected_share_is_the_sum_over_all_samples():
    weight, mu, n = np.array([0.2, 1.0, 4.0]), np.array([0.5, 0.4, 0.1]), 4
    for how in ("kish", "perplexity", "max"):
        brute = sum(
            math.prod(mu[i] for i in draw) * float(WeightSums.of(np.log(weight[list(draw)])).ess(how))
            for draw in itertools.product(range(3), repeat=n)
        )
        assert expected_share(weight, mu, n, how) == pytest.approx(brute, abs=1e-13)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_upper_limit_of_the_kish_share_errs_as_often_as_declared_and_not_much_less(n):
    error = 0.1
    for p in (0.999 * error / n, 0.3, 0.9):  # at the first one Markov's inequality is nearly an equality
        weight_A, mu_A = np.array([0.0, 1 / p]), np.array([1 - p, p])  # pi never takes the first action
        wrong = 0.0
        for draw in itertools.product(range(2), repeat=n):
            w = weight_A[list(draw)]
            with np.errstate(divide="ignore"):
                below = w.any() and float(WeightSums.of(np.log(w)).kish_upper_limit(error)) < p
            wrong += below * mu_A[list(draw)].prod()
        assert wrong <= error
        if p < error:
            assert wrong == pytest.approx(1 - (1 - p) ** n)
            assert wrong > 0.95 * error


def test_the_upper_limit_is_a_share():
    assert float(WeightSums.of(np.zeros(9)).kish_upper_limit()) == 1.0
    assert float(WeightSums.of(np.log([0.0625, 64.0])).kish_upper_limit(0.5)) == pytest.approx(1 / 1024)


def test_a_negative_probability_has_no_share():
    refuses("expected weights >= 0, as many probabilities", expected_share, [1.0, 2.0], [1.5, -0.5], 3)


def test_requests_that_cannot_be_answered_say_why():
    refuses("at most 2,000,000", expected_share, np.ones(9), np.full(9, 1 / 9), 60)
    refuses("that sum to 1", expected_share, [1.0, 2.0], [0.5, 0.4], 3)
    refuses("expected 0 < error < 1", WeightSums.of([0.0]).kish_upper_limit, 1.0)
