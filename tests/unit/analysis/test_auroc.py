"""AUROC is a share of pairs, and Kendall's tau is scipy's."""

import numpy as np
import pytest
from scipy.stats import kendalltau

from analysis.judging.auroc import auroc, kendall


def test_auroc_is_the_share_of_pairs_that_are_in_order_with_ties_half():
    rng = np.random.default_rng(0)
    score, event = rng.integers(0, 5, 30).astype(float), rng.random(30) < 0.4
    pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a in score[event] for b in score[~event]]
    assert auroc(score, event) == pytest.approx(np.mean(pairs))


def test_auroc_leaves_unknown_scores_out_and_needs_both_kinds():
    assert auroc([np.nan, 1.0, 0.0], [1, 1, 0]) == 1.0
    assert np.isnan(auroc([1.0, 2.0], [1, 1]))


def test_kendalls_tau_is_scipys_to_the_last_digit_with_ties_and_missing_numbers():
    rng = np.random.default_rng(2)
    for n in range(3, 12):
        x, y = rng.integers(0, 4, n) / 7.0, rng.normal(size=n)
        x[0] = np.nan if n % 2 else x[0]
        np.testing.assert_array_equal(kendall(x, y), kendalltau(x, y, nan_policy="omit").statistic)
    assert np.isnan(kendall([1.0, 1.0], [1.0, 2.0]))
