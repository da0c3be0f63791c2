"""Evidence: every word is earned under its alternative, and a wrong word needs a bet that rarely wins."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from analysis.judging import rule
from analysis.judging.comparisons import at_floor, happens_more_often, happens_mostly, median_within
from analysis.judging.e_values import (
    MEAN,
    MEDIAN,
    NONE,
    REFUTED,
    SMALLER,
    SUPPORTED,
    exact,
    exceeds,
    stays_below,
    within,
)

RNG_SEED, RUNS, N = 20_261, 200, 48
MARGIN = 0.5
TRUTHS = {"far above": 1.5, "at the margin": 0.5, "between": 0.25, "none": 0.0, "opposite": -1.0}
RIGHT = {
    "far above": {SUPPORTED}, "at the margin": {SMALLER}, "between": {SMALLER, NONE}, "none": {NONE},
    "opposite": {REFUTED},
}  # fmt: skip
"""Words that are true at each truth, of x > 0.5; "at the margin" the direction alone is claimed."""


def draws(center, law, rng):
    noise = {"normal": rng.normal(size=N), "two peaks": rng.choice([-1.0, 1.0], N) + rng.normal(0, 0.3, N)}
    return center + 0.5 * noise[law]


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize(("measure", "law"), [(MEDIAN, "normal"), (MEDIAN, "two peaks"), (MEAN, "normal")])
def test_a_wrong_word_is_as_rare_as_its_e_value_says(truth, measure, law):
    # A wrong word at e >= 40 has chance 2/40 at most: Binomial(200, .05) exceeds 26 with chance 1e-6.
    rng, wrong = np.random.default_rng(RNG_SEED), 0
    quick = dataclasses.replace(measure, interval=lambda _: (0.0, 0.0))
    for _ in range(RUNS):
        found = exceeds(draws(TRUTHS[truth], law, rng), MARGIN, "x", quick)
        wrong += any(e >= 40 for word, e in found.e.items() if word not in RIGHT[truth])
    assert wrong <= stats.binom.isf(1e-6, RUNS, 0.05)


@pytest.mark.parametrize("truth", ["far above", "none", "opposite"])
@pytest.mark.parametrize("measure", [MEDIAN, MEAN])
def test_the_right_word_is_found(truth, measure):
    rng, found = np.random.default_rng(RNG_SEED), []
    for _ in range(30):
        e = exceeds(draws(TRUTHS[truth], "normal", rng), MARGIN, "x", measure).e
        found.append(max(e, key=e.get) in RIGHT[truth] and max(e.values()) >= 40)
    assert np.mean(found) >= 0.9


def test_a_direction_without_the_size_is_smaller_than_claimed_and_never_refuted():
    x_N = np.random.default_rng(1).normal(0.2, 0.1, 40)
    for measure in (MEDIAN, MEAN):
        e = exceeds(x_N, MARGIN, "x", measure).e
        assert max(e, key=e.get) in (SMALLER, NONE)
        assert e[SMALLER] > 1e3
        assert e[REFUTED] < 1


def test_a_statement_over_cells_needs_every_cell_and_falls_with_one_that_opposes():
    rng = np.random.default_rng(2)
    good, flat, bad = (rng.normal(center, 0.2, 40) for center in (1.0, 0.0, -1.0))
    both = exceeds({"a": good, "b": good}, 0.0, "x", MEDIAN)
    assert both.e[SUPPORTED] == exceeds(good, 0.0, "x", MEDIAN).e[SUPPORTED]
    open_ = exceeds({"a": good, "b": flat}, 0.0, "x", MEDIAN)
    assert max(open_.e.values()) < 40
    opposed = exceeds({"a": good, "b": bad}, 0.0, "x", MEDIAN)
    assert opposed.e[REFUTED] == pytest.approx(exceeds(bad, 0.0, "x", MEDIAN).e[REFUTED] / 2, rel=1e-6)
    assert opposed.note.endswith("1 of 2 cells agree, least b")
    assert [cell.agrees for cell in opposed.cells] == [True, False]
    assert exceeds({"a": good, "b": bad[:9]}, 0.0, "x", MEDIAN).n == 9  # of the smallest cell
    level = exceeds({"at": np.full(9, 0.25), "above": np.full(9, 0.5)}, 0.25, "x", MEDIAN)
    assert [cell.agrees for cell in level.cells] == [False, True]  # at the margin is not above it


def test_the_effect_is_the_number_itself_in_the_cell_that_agrees_least():
    found = exceeds({"a": [0.2, 0.4, 0.3], "b": [0.1, 0.2, 0.3]}, 0.05, "gain", MEAN)
    assert (found.effect, found.asks, found.n) == (pytest.approx(0.2), "> 0.05", 3)
    assert found.low < 0.2 < found.high
    below = stays_below([0.1, 0.2, 0.3], 0.5, "loss", MEAN)
    assert (below.effect, below.asks) == (pytest.approx(0.2), "< 0.5")
    assert below.low < 0.2 < below.high
    near = median_within({"a": [0.01, -0.02, 0.0], "b": [0.04, 0.03, 0.05]}, 0.1, "change")
    assert (near.effect, near.asks) == (0.04, "within 0.1")


def test_below_mirrors_above():
    x_N = np.random.default_rng(5).normal(0.3, 0.2, 24)
    for measure in (MEAN, MEDIAN):
        assert stays_below(x_N, 0.1, "x", measure).e == exceeds(-x_N, -0.1, "x", measure).e


def test_equality_is_supported_inside_and_refuted_outside():
    rng = np.random.default_rng(6)
    inside, outside = rng.normal(0.0, 0.02, 40), rng.normal(0.3, 0.02, 40)
    assert within({"a": inside}, 0.1, "x", MEAN).e[SUPPORTED] > 1e6
    assert within({"a": inside, "b": outside}, 0.1, "x", MEAN).e[REFUTED] > 1e6
    floored = within({"a": inside}, 0.1, "x", MEAN, floored=["both"])
    assert floored.e[SUPPORTED] <= 1.0


def test_evidence_against_equality_is_half_of_both_sides_together():
    """An average of e-values is one; their sum is not."""
    x_N = np.full(12, 2.0)
    (above, _), (_, below) = MEDIAN.bet(x_N, 1.0), MEDIAN.bet(x_N, -1.0)
    assert within(x_N, 1.0, "x", MEDIAN).e[REFUTED] == pytest.approx((above + below) / 2)


def test_events_are_counted_in_pairs_that_differ():
    import pandas as pd

    first, second = pd.Series([1] * 12 + [1, 0]), pd.Series([0] * 12 + [1, 0])
    found = happens_more_often(first, second, "share")
    assert (found.effect, found.n) == (1.0, 14)
    assert "12 of 14 pairs differ" in found.note
    assert found.e[SUPPORTED] > 300
    same = happens_more_often(first, first, "share")
    assert (same.effect, same.e) == (0.5, {})
    mostly = happens_mostly([True] * 15 + [False], "share")
    assert (mostly.asks, mostly.e[REFUTED] < 1 < mostly.e[SUPPORTED]) == ("> 0.5", True)


def test_without_units_nothing_is_decided():
    for found in (*(exceeds(x, 0.0, "x", MEDIAN) for x in ({}, {"a": []})), exceeds([], 0, "x", MEAN)):
        assert math.isnan(found.effect)
        assert rule.strongest(found) == 0.0
    assert rule.strongest(exceeds({"a": [1.0] * 30, "b": []}, 0.0, "x", MEDIAN)) == 0.0


def test_a_computed_claim_holds_within_its_tolerance():
    held = [exact(gaps, 1e-9, "").holds for gaps in ([0, 1e-9], [0, 2e-9], [0, math.nan])]
    assert held == [True, False, False]
    assert exact([-3.0, 0.5], 1, "").n == 2


@pytest.mark.parametrize(("middle", "near"), [(0.05, True), (0.12, True), (0.3, False)])
def test_an_arm_is_off_the_floor_when_its_interval_clears_floor_and_margin(middle, near):
    """Eight values of spread 0.05: the interval is the middle +- 0.04; the margin 0.1."""
    arm_N = middle + 0.05 * np.array([-1.0, 1.0] * 4)
    assert at_floor([np.zeros(8), arm_N], 0.1) is near
    assert at_floor([np.zeros(8) + 1, arm_N + 1], 0.1, floor=1.0) is near
