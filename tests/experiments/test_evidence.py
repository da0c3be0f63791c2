"""Every evidence function keeps its rates under its null, and decides both ways under its alternatives.

Verdicts are those of one claim alone at ALPHA. A boundary law must be called "supported", and "refuted", with
chance ALPHA/2 at most each: more than the 1 - 1e-6 quantile of Binomial(RUNS, ALPHA/2) fails. An alternative
must be decided its own way with chance POWER at least: fewer than the 1e-6 quantile fails, and the other
verdict must not come up more often than at the boundary. Seeds are fixed.
"""

from __future__ import annotations

import inspect
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from analysis.judging import claims, comparisons
from analysis.judging.claims import ALPHA, Evidence, everywhere, mean_above_zero, more_often, on_most
from analysis.judging.comparisons import (
    at_floor,
    must_exceed,
    must_happen_more_often,
    must_stay_below,
    must_vanish,
)

RUNS = 1000
POWER = 0.85
MOST_WRONG = stats.binom.isf(1e-6, RUNS, ALPHA / 2)
FEWEST_RIGHT = stats.binom.ppf(1e-6, RUNS, POWER)
UNITS = 12


def means(*mean_G, shared=False):
    """Groups of UNITS normal units; shared: the same noise in all, as arms of the same seeds have."""

    def draw(rng):
        noise_GN = rng.normal(size=(1 if shared else len(mean_G), UNITS))
        return dict(enumerate(np.array(mean_G)[:, None] + noise_GN))

    return draw


def coins(*chance_G):
    return lambda rng: [rng.random(20) < chance for chance in chance_G]


def near_a_floor(difference, level):
    """Paired accuracies of two arms, never below 0."""

    def draw(rng):
        first_N = np.maximum(rng.normal(level, 0.2, UNITS), 0)
        return first_N, np.maximum(first_N + rng.normal(difference, 0.2, UNITS), 0)

    return draw


def of_arms(arms) -> Evidence:
    return must_vanish({"all": arms[1] - arms[0]}, 1.0, "", ["all"] if at_floor(arms, 1.0) else [])


OF_THESE = (
    *(claims.exact, claims.look, claims.replicated),
    *(must_exceed, must_stay_below, must_happen_more_often),
)
"""Exact, of two runs (test_sequential_evidence), or one of the others at a margin."""

CASES = {
    mean_above_zero: (
        lambda groups: mean_above_zero(groups[0], ""),
        {"boundary": means(0.0), "supported": means(1.2), "refuted": means(-1.2)},
    ),
    everywhere: (
        lambda groups: everywhere(groups, ""),
        {
            "boundary": means(0.0, 3.0, 3.0),
            "boundary, all": means(0.0, 0.0, 0.0),
            "boundary, shared": means(0.0, 0.0, 0.0, shared=True),
            "supported": means(1.5, 1.5, 1.5),
            "supported, shared": means(1.5, 1.5, 3.0, shared=True),
            "refuted": means(1.5, -1.5, 3.0),
        },
    ),
    more_often: (
        lambda events: more_often(*events, ""),
        {"boundary": coins(0.5, 0.5), "supported": coins(0.9, 0.2), "refuted": coins(0.2, 0.9)},
    ),
    on_most: (
        lambda events: on_most(events[0], ""),
        {"boundary": coins(0.5), "supported": coins(0.9), "refuted": coins(0.1)},
    ),
    must_vanish: (
        lambda groups: must_vanish(groups, 2.0, ""),
        {
            "boundary": means(2.0, 0.0),
            "boundary, below": means(0.0, -2.0),
            "boundary, twice": means(2.0, -2.0),
            "supported": means(0.5, -0.5),
            "refuted": means(0.0, 3.5),
            "refuted, below": means(-3.5, 0.0),
        },
    ),
    at_floor: (
        of_arms,
        {
            "boundary": near_a_floor(1.0, 3.0),
            "boundary, floored": near_a_floor(0.0, 0.5),
            "supported": near_a_floor(0.0, 3.0),
            "refuted": near_a_floor(2.0, 0.5),
        },
    ),
}


@pytest.mark.parametrize(
    ("function", "law"),
    [(function, law) for function, (_, laws) in CASES.items() for law in laws],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_the_evidence_keeps_its_rates_and_can_decide_both_ways(function, law):
    evidence, laws = CASES[function]
    rng = np.random.default_rng([len(function.__name__), len(law)])
    found = Counter()
    for _ in range(RUNS):
        each = evidence(laws[law](rng))
        found[claims.verdict(each, each.p)] += 1
    if law.startswith("boundary"):
        assert max(found["supported"], found["refuted"]) <= MOST_WRONG, found
    else:
        right = law.partition(",")[0]
        assert found[right] >= FEWEST_RIGHT, found
        assert found["refuted" if right == "supported" else "supported"] <= MOST_WRONG, found


def test_tests_of_counts_keep_their_level_exactly_at_every_number_of_units():
    for n in range(1, 31):
        chance_K = stats.binom.pmf(np.arange(n + 1), n, 0.5)
        wrong = {"share": Counter(), "pairs": Counter()}
        for k, chance in enumerate(chance_K):
            events = [True] * k + [False] * (n - k)
            others = [not event for event in events]  # every pair is discordant
            for name, found in (("share", on_most(events, "")), ("pairs", more_often(events, others, ""))):
                wrong[name][claims.verdict(found, found.p)] += chance
        for each in wrong.values():
            assert max(each["supported"], each["refuted"]) <= ALPHA / 2


def test_no_evidence_function_is_left_out():
    for module in (claims, comparisons):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                returns = function.__annotations__.get("return")
                assert function in {*CASES, *OF_THESE} or returns != "Evidence", name


def test_arms_near_the_floor_are_no_evidence_of_equality_and_arms_clear_of_it_are():
    rng = np.random.default_rng(0)
    for level, expected in ((0.5, "inconclusive"), (3.0, "supported")):
        found = of_arms(near_a_floor(0.0, level)(rng))
        assert claims.verdict(found, found.p) == expected
    assert at_floor([[0.2, 0.21], [0.0, 0.0]], 0.5)
    assert not at_floor([[0.9, 0.91], [0.0, 0.0]], 0.5)
    assert not at_floor([[0.2, 0.21]], 0.5, floor=-1.0)
    assert at_floor([[0.9]], 0.5)


def test_a_comparison_that_cannot_be_refuted_says_so_and_its_counterpart_can():
    first, second = [False] * 16, [False] * 16
    never = more_often(first, second, "n")
    assert claims.verdict(never, never.p) == "inconclusive"
    assert (
        never.note == "n; p >= 3.1e-05 by design, and not to be refuted while the second never happens alone"
    )
    assert claims.verdict(on_most(first, "n"), on_most(first, "n").p) == "refuted"
    assert on_most(first, "n").note == "n; p >= 3.1e-05 by design"
    assert (on_most([], "n").n, on_most([], "n").p) == (0, 1.0)
