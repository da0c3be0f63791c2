"""Tail indices: typed outcomes where there is nothing to fit, a peer's numbers where there is, known laws."""

import math

import numpy as np
import pytest
import torch
from support.refusals import refuses

from testbed.diagnostics.tail_indices import (
    Estimated,
    Flat,
    TooFew,
    hill,
    moment,
    pareto_k,
    smooth,
    tail_length,
)

LEVEL = (np.arange(1, 4001) - 0.5) / 4000


def quantiles_of(k: float, level=LEVEL) -> np.ndarray:
    """Return log-quantiles of the unit generalized Pareto law with shape k, shifted by 1/2."""
    x = -np.log1p(-level) if k == 0 else np.expm1(-k * np.log1p(-level)) / k
    return np.log(x + 0.5)


LAWS = {
    "pareto": lambda rng, n: rng.exponential(0.5, n),
    "lognormal": lambda rng, n: rng.normal(-2.0, 2.0, n),
    "uniform": lambda rng, n: np.log(rng.random(n)),
    "beyond-a-mean": lambda rng, n: rng.exponential(1.5, n),
    "shifted-far": lambda rng, n: rng.normal(900.0, 3.0, n),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("n", [40, 225, 300, 5000])
def test_shape_and_smoothed_weights_are_those_of_arviz_stats(law, n):
    array_stats = pytest.importorskip("arviz_stats.base").array_stats
    log_w = LAWS[law](np.random.default_rng([n, len(law)]), n)
    # It rounds the tail length down where the paper rounds up, and takes minus the log-weights.
    tail = n // 5 if n <= 225 else int(3 * math.sqrt(n))
    theirs, k = array_stats.psislw(-log_w)
    smoothed, found = smooth(log_w, tail)
    assert isinstance(found, Estimated)
    assert found.k == pytest.approx(k, abs=1e-12)
    np.testing.assert_allclose(smoothed - np.logaddexp.reduce(smoothed), theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 6, 50, 1000, 10_000])
def test_on_policy_there_is_no_tail_and_never_an_infinite_k(n):
    assert isinstance(pareto_k(np.zeros(n)), Flat)
    rounding = np.random.default_rng(n).normal(0, 1e-8, n)
    assert isinstance(pareto_k(rounding), Flat)
    smoothed, outcome = smooth(rounding)
    assert isinstance(outcome, Flat)
    np.testing.assert_array_equal(smoothed, rounding)


@pytest.mark.parametrize("top", [0.003, 0.005, 0.02, 0.05, 0.09, 0.095, 0.12, 0.3])
def test_weights_of_three_values_never_give_a_number(top):
    # Upstream k flips between -5.5 and +inf as the mass of the top value crosses 0.005 and 0.095.
    heavy = round(1000 * top)
    log_w = np.log(np.repeat([4.0, 1.0, 0.5], [heavy, 500, 500 - heavy]))
    assert isinstance(pareto_k(log_w), Flat | TooFew)


def test_too_few_distinct_weights_above_the_cutoff_are_counted():
    log_w = np.concatenate([np.zeros(90), [1.0, 1.0, 2.0, 2.0, 3.0, 4.0]])
    assert pareto_k(log_w) == TooFew(n=96, tail=20, distinct=4)
    assert isinstance(pareto_k(np.append(log_w, 5.0)), Estimated)
    assert pareto_k([0.0, 1.0, 2.0]) == TooFew(n=3, tail=3, distinct=3)


def test_ties_with_the_cutoff_are_no_part_of_the_tail():
    log_w = np.r_[np.linspace(2, 4, 10), np.zeros(90)]
    smoothed, found = smooth(log_w)
    assert found.tail == 10
    assert found.k == pytest.approx(0.0726, abs=5e-5)
    np.testing.assert_array_equal(smoothed[10:], 0.0)
    assert np.exp(smoothed).mean() == pytest.approx(3.57, abs=5e-3)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_sums_of_a_two_valued_ratio_are_as_few_as_their_counts(dtype):
    # Seven weights, which differ by rounding with the order of their tokens.
    log_rho = np.log(np.array([1.9, 0.4], dtype=dtype))
    tokens = np.random.default_rng(0).choice(log_rho, (512, 6), p=[0.15, 0.85])
    log_w = tokens.cumsum(-1)[:, -1]
    assert np.unique(log_w).size > 7
    found = pareto_k(log_w)
    assert isinstance(found, TooFew)
    assert found.distinct <= 4
    np.testing.assert_array_equal(smooth(log_w)[0], log_w)


@pytest.mark.parametrize("k", [-0.5, 0.0, 0.3, 0.7, 1.2])
def test_exact_quantiles_give_the_index_back(k):
    log_w = quantiles_of(k)
    found = pareto_k(log_w)
    assert isinstance(found, Estimated)
    # The prior pulls k by 10/(tail + 10) toward 1/2: at most 0.07 here.
    assert found.k == pytest.approx(k, abs=0.07)
    assert pareto_k(log_w + 500.0).k == pytest.approx(found.k, abs=1e-9)
    assert moment(log_w, 200) == pytest.approx(k, abs=0.03)


def test_hill_reads_a_pareto_index_exactly_in_the_limit_and_a_positive_one_from_any_law():
    pareto = -0.5 * np.log1p(-LEVEL)
    assert hill(pareto, 400) == pytest.approx(0.5, abs=1e-3)
    uniform = np.log(LEVEL)
    assert hill(uniform, 400) > 0.04
    assert moment(uniform, 400) == pytest.approx(-1.0, abs=0.02)


def test_threshold_and_required_samples_follow_the_published_formulas():
    n = 1000
    found = pareto_k(quantiles_of(0.6, (np.arange(1, n + 1) - 0.5) / n))
    assert found.threshold == pytest.approx(2 / 3)
    assert found.required == pytest.approx(10 ** (1 / (1 - found.k)))
    assert found.reliable == (found.k <= 2 / 3)
    assert pareto_k(quantiles_of(0.6)).threshold == 0.7
    assert pareto_k(quantiles_of(-0.8)).required == 10
    heavy = pareto_k(quantiles_of(1.6))
    assert (heavy.required, heavy.reliable) == (math.inf, False)
    assert (tail_length(225), tail_length(1000), tail_length(7)) == (45, 95, 2)


def test_weights_spread_over_hundreds_of_orders_of_magnitude_still_have_a_huge_k():
    # arviz-stats 0.8 reads 0.09 here, "excellent".
    log_w = np.random.default_rng(2).normal(0, 300, 225)
    found = pareto_k(log_w)
    assert isinstance(found, Estimated)
    assert found.k > 10
    smoothed, _ = smooth(log_w)
    assert np.isfinite(smoothed).all()
    assert smoothed.max() <= log_w.max()


def test_smoothing_keeps_order_body_and_bound():
    log_w = LAWS["beyond-a-mean"](np.random.default_rng(4), 2000)
    smoothed, found = smooth(log_w)
    order = np.argsort(log_w)
    assert (np.diff(smoothed[order]) >= 0).all()
    body = order[: -found.tail]
    np.testing.assert_array_equal(smoothed[body], log_w[body])
    assert smoothed.max() <= log_w.max()
    assert not np.array_equal(smoothed, log_w)


def test_a_tail_by_hand():
    log_w = np.log([16.0, 8.0, 4.0, 2.0, 1.0, 1.0])
    log2 = math.log(2)
    assert hill(log_w, 3) == pytest.approx(2 * log2)  # (3 + 2 + 1)/3 over log 2
    ratio = (2 * log2) ** 2 / (14 / 3 * log2**2)
    assert moment(log_w, 3) == pytest.approx(2 * log2 + 1 - 0.5 / (1 - ratio))


def test_ties_leave_moment_undefined_and_hill_at_zero():
    log_w = np.zeros(50)
    assert hill(log_w, 5) == 0.0
    assert math.isnan(moment(log_w, 5))
    assert math.isnan(moment([1.0, 0.0, -1.0], 1))


@pytest.mark.parametrize(
    "call",
    [lambda: pareto_k([0.0, np.nan]), lambda: pareto_k([[0.0, 1.0]]), lambda: pareto_k([-np.inf] * 9),
     lambda: pareto_k(np.zeros(9), tail=9), lambda: hill(np.zeros(5), 5),
     lambda: hill([0.0, 1.0, -np.inf], 2), lambda: pareto_k(np.arange(9.0), tail=2.5)],
)  # fmt: skip
def test_weights_without_a_tail_index_are_refused(call):
    refuses(".", call)


def test_a_tensor_of_any_type_and_with_a_gradient_is_read():
    log_w = torch.tensor(LAWS["pareto"](np.random.default_rng(7), 400)).bfloat16().requires_grad_()
    assert pareto_k(log_w) == pareto_k(log_w.detach().double().numpy())


def test_smoothed_weights_are_quantiles_of_the_fitted_law():
    from scipy.stats import genpareto

    log_w = LAWS["pareto"](np.random.default_rng(7), 400)
    smoothed, fit = smooth(log_w)
    level = (np.arange(1, fit.tail + 1) - 0.5) / fit.tail
    fitted = genpareto(fit.k, loc=math.exp(fit.log_cutoff), scale=math.exp(fit.log_scale))
    expected = np.minimum(fitted.ppf(level), np.exp(log_w.max()))
    assert np.sort(np.exp(smoothed))[-fit.tail :] == pytest.approx(expected, rel=1e-10)
