"""AUROC is a share of pairs; scores without a number are left out, of Kendall's tau too."""

import numpy as np
import pytest

from analysis.judging.auroc import auroc, kendall


def test_auroc_is_the_share_of_pairs_that_are_in_order_with_ties_half():
    rng = np.random.default_rng(0)
    score, event = rng.integers(0, 5, 30).astype(float), rng.random(30) < 0.4
    pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a in score[event] for b in score[~event]]
    assert auroc(score, event) == pytest.approx(np.mean(pairs))


def test_auroc_leaves_unknown_scores_out_and_needs_both_kinds():
    assert auroc([np.nan, 1.0, 0.0], [1, 1, 0]) == 1.0
    assert np.isnan(auroc([1.0, 2.0], [1, 1]))


def test_kendalls_tau_leaves_pairs_without_a_number_out():
    assert kendall([1.0, np.nan, 2.0, 3.0], [1.0, 9.0, 3.0, 2.0]) == pytest.approx(1 / 3)
    assert np.isnan(kendall([1.0, 1.0], [1.0, 2.0]))
