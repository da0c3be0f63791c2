"""Evidence: every word is earned under its alternative, and a wrong word needs a bet that rarely wins."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from scipy import stats

from analysis.judging import rule
from analysis.judging.comparisons import at_floor, happens_more_often, happens_mostly
from analysis.judging.e_values import (
    DIRECTION,
    MEAN,
    MEDIAN,
    MISSED,
    NONE,
    REFUTED,
    SMALLER,
    SUPPORTED,
    Cell,
    Evidence,
    Measure,
    exact,
    exceeds,
    stays_below,
    within,
)  # fmt: skip

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


def bets_of(x_N, t):
    """Bets that are easy to follow: what lies above t by e-folds, and what lies below."""
    return math.exp(sum(x_N) - len(x_N) * t), math.exp(2 * len(x_N) * t - sum(x_N))


PLAIN = Measure("plain", bets_of, lambda x_N: x_N[0], lambda x_N: (min(x_N), max(x_N)))
ASKED = {"above": (exceeds, ">"), "below": (stays_below, "<"), "within": (within, "within")}


def by_hand(way, groups, margin, null):
    """Evidence as the table of words says: every cell is the least e-value, some cell the mean."""
    turned = {name: [-x if way == "below" else x for x in x_N] for name, x_N in groups.items()}
    m, zero = (-margin, -null) if way == "below" else (margin, null)

    def bet(t, place, join):
        return join([bets_of(x_N, t)[place] for x_N in turned.values()])

    above, below = (lambda t, join=min, place=place: bet(t, place, join) for place in (0, 1))
    mean = lambda values: sum(values) / len(values)  # noqa: E731
    half = {}
    if way == "within":
        e = {SUPPORTED: min(above(-m), below(m)), REFUTED: (above(m, mean) + below(-m, mean)) / 2}
        agrees, badness = lambda x: abs(x) < m, abs
    else:
        # Two bets that x is below, in the mean and in one cell, share a stake.
        stake = 0.5 if m > zero == 0 and len(turned) > 1 else 1.0
        e = {SUPPORTED: above(m), REFUTED: stake * below(min(m, zero), mean)}
        half = {DIRECTION: above(zero), MISSED: stake * below(m, mean)} if m > zero else {}
        e |= {SMALLER: min(half.values())} if half else {}
        e |= {NONE: min(above(-m), stake * below(m))} if half and zero == 0 else {}
        agrees, badness = lambda x: x > m, lambda x: -x
    worst = max(turned, key=lambda name: badness(turned[name][0]))
    sign = -1 if way == "below" else 1
    cells = tuple(Cell(name, groups[name][0], len(x_N), agrees(x_N[0])) for name, x_N in turned.items())
    note = "x"
    if len(cells) > 1:
        note += f"; {sum(cell.agrees for cell in cells)} of {len(cells)} cells agree, least {worst}"
    ends = sorted(sign * end for end in (min(turned[worst]), max(turned[worst])))
    asks = f"{ASKED[way][1]} {margin:g}"
    n = min(cell.n for cell in cells)
    return Evidence(groups[worst][0], *ends, n, note, asks, e, cells, half=half)


@pytest.mark.parametrize("way", ASKED)
@pytest.mark.parametrize(("margin", "null"), [(0.3, 0.0), (0.3, 0.3), (0.0, 0.0), (-0.2, 0.0), (0.75, 0.5)])
def test_evidence_is_what_the_table_of_words_says(way, margin, null):
    rng = np.random.default_rng(9)
    call = {} if way == "within" else {"null": null}
    for count in (1, 1, 2, 3, 4):
        groups = {f"cell {i}": rng.normal(0.3, 0.5, rng.integers(1, 6)).tolist() for i in range(count)}
        groups["cell 0"][0] = abs(margin)  # at the margin nothing agrees
        found = ASKED[way][0](groups, margin, "x", PLAIN, **call)
        expected = by_hand(way, groups, margin, null)
        for name, value in vars(expected).items():
            approximate = name in ("effect", "low", "high", "e", "half")
            assert getattr(found, name) == (pytest.approx(value) if approximate else value), name


def test_arms_at_the_floor_are_no_evidence_of_equality_and_are_named():
    found = within({"a": [0.1], "b": [0.0]}, 5.0, "x", PLAIN, floored=["a", "b"])
    told = "x; both arms at the floor, where nothing can differ: a, b; 2 of 2 cells agree, least a"
    assert (found.e[SUPPORTED], found.note) == (1.0, told)


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
    empty = ({}, [], {"a": []}, {"a": [1.0] * 30, "b": []}, {"a": [1.0] * 30, "b": [math.nan] * 30})
    for x, (ask, sign) in itertools.product(empty, ASKED.values()):
        found = ask(x, 0.5, "x", MEDIAN)
        assert math.isnan(found.effect)
        assert (found.low, found.high, found.n, found.note) == (-math.inf, math.inf, 0, "x; no rows")
        assert (rule.strongest(found), found.asks) == (0.0, f"{sign} 0.5")


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
