"""P17: intervals cover and tail indices are right on laws whose truth is known.

Every check allows as many misses as a method that keeps its promise exactly exceeds with chance 1e-6.
"""

import numpy as np
import pytest
from scipy import stats

from analysis.judging.seed_intervals import clopper_pearson_interval, median_interval
from testbed.diagnostics.tail_indices import Estimated, pareto_k, tail_length
from testbed.estimators import intervals

FALSE_ALARM = 1e-6
LEVEL = 0.9
BOUNDED = {
    "uniform": (lambda rng, shape: rng.random(shape), 0.5),
    "rare": (lambda rng, shape: (rng.random(shape) < 0.02).astype(float), 0.02),
    "beta(1/2, 1/2)": (lambda rng, shape: rng.beta(0.5, 0.5, shape), 0.5),
}


def most_misses(trials: int, chance: float) -> int:
    """Return the number of misses above which a chance of so much is refuted."""
    return int(stats.binom.ppf(1 - FALSE_ALARM, trials, chance))


@pytest.mark.parametrize("law", BOUNDED)
@pytest.mark.parametrize("n", [10, 100])
def test_intervals_that_promise_coverage_at_every_n_keep_it(law, n, campaign):
    trials = campaign.trials(short=1000, full=10_000)
    draw, mean = BOUNDED[law]
    terms_MN = draw(np.random.default_rng([17, n]), (trials, n))
    for method in (intervals.hoeffding, intervals.empirical_bernstein, intervals.betting):
        found = method(terms_MN, low=0.0, high=1.0, level=LEVEL)
        misses = int(((found.low > mean) | (found.high < mean)).sum())
        assert misses <= most_misses(trials, 1 - LEVEL), method.__name__
    assert (intervals.hcope(terms_MN, level=LEVEL).low > mean).sum() <= most_misses(trials, 1 - LEVEL)
    log_smoothed_M = np.log1p(0.5 * terms_MN).mean(-1) / 0.5
    bound_M = intervals.log_smoothing_bound(log_smoothed_M, lambda_=0.5, n=n, level=LEVEL)
    assert (bound_M > mean).sum() <= most_misses(trials, 1 - LEVEL)
    campaign.tried(f"coverage of five intervals, {law} law, N = {n}", 5 * trials)


@pytest.mark.parametrize("n", [3, 30])
def test_intervals_that_are_exact_miss_neither_more_nor_less_than_they_say(n, campaign):
    trials = campaign.trials(short=4000, full=40_000)
    found = intervals.student(np.random.default_rng([18, n]).normal(size=(trials, n)), level=LEVEL)
    misses = int(((found.low > 0) | (found.high < 0)).sum())
    assert trials - most_misses(trials, LEVEL) <= misses <= most_misses(trials, 1 - LEVEL)
    campaign.tried(f"Student's t on normal terms, N = {n}: not more and not fewer misses", trials)


def test_the_median_and_a_share_are_covered(campaign):
    trials = campaign.trials(short=300, full=4000)
    rng = np.random.default_rng(19)
    for n in (6, 21):
        draws_MN = rng.lognormal(size=(trials, n))
        found = [median_interval(x_N, LEVEL) for x_N in draws_MN]
        misses = sum(not each.low <= 1.0 <= each.high for each in found)
        assert misses <= most_misses(trials, 1 - LEVEL)
    for n, chance in ((8, 0.1), (40, 0.5)):
        kept = [clopper_pearson_interval(hits, n, LEVEL) for hits in range(n + 1)]
        missed = [not each.low <= chance <= each.high for each in kept]
        assert stats.binom.pmf(np.arange(n + 1), n, chance)[missed].sum() <= 1 - LEVEL
    campaign.tried("coverage of the interval for a median; Clopper–Pearson exactly", 2 * trials + 2)


@pytest.mark.parametrize("k", [0.2, 0.5, 0.7, 1.0])
def test_pareto_k_is_right_on_pareto_tails_but_for_its_prior(k, campaign):
    """The fit has a prior worth 10 of its `tail` terms toward 1/2; its other bias falls with the tail."""
    trials, n = campaign.trials(short=40, full=1500), 4000
    rng = np.random.default_rng(20)
    found = [pareto_k(rng.exponential(k, n)) for _ in range(trials)]
    assert all(isinstance(each, Estimated) for each in found)
    k_M = np.array([each.k for each in found])
    tail = tail_length(n)
    expected = (k * tail + 0.5 * 10) / (tail + 10)
    allowed = 5 * k_M.std(ddof=1) / np.sqrt(trials) + 0.015
    assert abs(k_M.mean() - expected) <= allowed
    # Asymptotically the spread is (1 + k)/sqrt(tail), shrunk by the prior.
    spread = (1 + k) / np.sqrt(tail) * tail / (tail + 10)
    assert 0.6 * spread <= k_M.std(ddof=1) <= 1.4 * spread
    campaign.tried(f"Pareto-k of {n:,} weights with tail index {k}: mean and spread", trials)
