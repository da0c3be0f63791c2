"""Two one-sided tests against the textbook, and every verdict of the claims about REC."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.experiments.lag import rec, rec_bounded
from analysis.judging import claims as base
from analysis.judging.comparisons import must_vanish
from analysis.tables.committed import load_committed
from paper_figs import base as base_figure
from paper_figs import rec as rec_figure
from paper_figs import run

LAGS, SEEDS = (0, 16, 260), 16
NOISE = np.linspace(-0.02, 0.02, SEEDS)


def decide(evidence):
    return base.verdict(evidence, evidence.p)


# Equivalence


def test_both_one_sided_tests_are_students():
    x = np.array([0.01, 0.03, -0.01, 0.02])
    found = must_vanish({"all": x}, 0.05, "x")
    upper = stats.ttest_1samp(x, 0.05, alternative="less").pvalue
    lower = stats.ttest_1samp(x, -0.05, alternative="greater").pvalue
    assert found.p == pytest.approx(2 * max(upper, lower))
    radius = stats.t(3).ppf(0.975) * x.std(ddof=1) / 2
    assert (found.effect, found.low) == pytest.approx((0.05 - x.mean(), 0.05 - x.mean() - radius))
    assert found.high == 0.05  # the interval of the mean holds 0
    assert found.n == 4


def test_an_interval_on_one_side_of_zero_leaves_less_than_the_margin():
    x = np.array([-0.021, -0.019, -0.02, -0.022])
    found = must_vanish({"all": x}, 0.05, "x")
    radius = stats.t(3).ppf(0.975) * x.std(ddof=1) / 2
    assert (found.low, found.high) == pytest.approx((0.0295 - radius, 0.0295 + radius))


def test_every_group_must_be_inside():
    calm, wide = 0.1 * NOISE, 2.5 * NOISE
    both = must_vanish({"calm": calm, "wide": wide}, 0.05, "x")
    assert both.p == must_vanish({"wide": wide}, 0.05, "x").p > must_vanish({"calm": calm}, 0.05, "x").p
    assert (both.n, both.arms, both.cells) == (SEEDS, 2, 2 * SEEDS)


def test_one_group_outside_refutes_at_a_corrected_level():
    inside, outside = NOISE, NOISE + 0.1
    alone = must_vanish({"b": outside}, 0.05, "x")
    both = must_vanish({"a": inside, "b": outside}, 0.05, "x")
    assert decide(both) == "refuted"
    assert both.p == pytest.approx(2 * alone.p)
    assert both.effect == pytest.approx(-0.05)
    assert both.note == "x; worst: b"


@pytest.mark.parametrize("x", [[], [0.01], [0.01, 0.01, 0.01], [0.3, 0.3]])
def test_without_spread_between_pairs_nothing_is_concluded(x):
    assert must_vanish({"all": x}, 0.05, "x").p == 1


def test_pairs_that_are_all_equal_need_no_test_and_are_no_evidence():
    found = must_vanish({"same": np.zeros(4), "near": NOISE}, 0.05, "x")
    assert (found.n, found.note) == (SEEDS, "x; equal in every pair: same; worst: near")
    nothing = must_vanish({"same": np.zeros(4)}, 0.05, "x")
    assert (nothing.n, nothing.p) == (0, 1)
    assert math.isnan(nothing.effect)


def test_a_true_difference_at_the_margin_is_called_equal_no_more_often_than_declared():
    # 2 x 2.5% two-sided: at a difference of exactly the margin one side rejects with chance 2.5%.
    x_MN = np.random.default_rng(3).normal(0.05, 0.02, size=(4000, 6))
    wrong = np.mean([decide(must_vanish({"all": x_N}, 0.05, "x")) == "supported" for x_N in x_MN])
    # P(Binomial(4000, 0.025) > 152) < 1e-6; a test at 5% has 200.
    assert wrong <= 152 / 4000


# The claims


def rec_table(change=0.0, clipped_falls=0, open_falls=SEEDS):
    """Final accuracies of REC; `change` is what importance weights add at lag 16; falls count seeds."""
    rows = []
    for lag in LAGS:
        for seed in range(SEEDS):
            for recipe, falls in (("rec", clipped_falls), ("rec_oneside", open_falls)):
                for weight in rec.WEIGHTS:
                    weighted = weight == "importance" and recipe == "rec"
                    moved = NOISE[seed] + (change if lag == 16 else 0.0) if weighted and lag else 0.0
                    rows.append(
                        {
                            "recipe": recipe,
                            rec.WEIGHT: weight,
                            "lag": lag,
                            "seed": seed,
                            "accuracy": 0.3 + seed / 40 + moved,  # pairs tell more than means
                            "collapsed": float(lag == 260 and seed < falls),
                        }
                    )
    rows.append(
        {
            "recipe": "reinforce",
            rec.WEIGHT: math.nan,
            "lag": 260,
            "seed": 0,
            "accuracy": 0.0,
            "collapsed": 1.0,
        }
    )
    return pd.DataFrame(rows).sample(frac=1, random_state=0)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (0.0, "supported"),
        (0.05, "inconclusive"),
        (-0.05, "inconclusive"),
        (-0.2, "refuted"),
        (0.2, "refuted"),
    ],
)
def test_the_claims_of_equal_accuracy_reach_every_verdict(change, expected):
    table = rec_table(change)
    assert decide(rec.rec_importance_weights_change_nothing(table)) == expected
    two = table[table["recipe"] == "rec"].assign(**{"recipe_args.keep": "twoside"})
    other = two.assign(**{"recipe_args.keep": "oneside", "accuracy": NOISE[0] + two["accuracy"] ** 2})
    both = pd.concat([two, other])
    assert decide(rec_bounded.rec_bounded_importance_weights_change_nothing(both)) == expected
    swapped = both.assign(
        **{"recipe_args.keep": both["recipe_args.keep"].map({"twoside": "oneside", "oneside": "x"})}
    )
    assert decide(rec_bounded.rec_slow_importance_weights_change_nothing(swapped)) == expected


def test_the_note_gives_the_change_at_every_lag():
    note = rec.rec_importance_weights_change_nothing(rec_table(-0.2)).note.replace("-0.000", "+0.000")
    changes = "0.49+0.000 at lag 0, 0.49-0.200 at lag 16, 0.49+0.000 at lag 260"
    assert f"medians {changes}; worst: lag 16" in note


@pytest.mark.parametrize(
    ("clipped", "opened", "expected"),
    [(0, SEEDS, "supported"), (SEEDS, 0, "refuted"), (8, 8, "inconclusive"), (0, 5, "inconclusive")],
)
def test_the_claim_about_the_clip_reaches_every_verdict(clipped, opened, expected):
    evidence = rec.rec_clip_prevents_collapse(rec_table(clipped_falls=clipped, open_falls=opened))
    assert decide(evidence) == expected
    assert evidence.n == SEEDS
    assert f"without the clip on {opened}, with it on {clipped} of 16 seeds" in evidence.note


# The figure


def test_the_figure_joins_the_medians_of_the_seeds_and_shows_every_seed():
    table = load_committed(["rec"])["rec"].frame
    with run.style():
        (ax,) = base_figure.draw("rec", table).axes
    lags = sorted(set(table["lag"]))
    for recipe, weight, _, color, marker, _ in rec_figure.ARMS:
        rows = table[(table["recipe"] == recipe) & (table[rec.WEIGHT] == weight)]
        lines = [line for line in ax.get_lines() if line.get_color() == color]
        (joined,) = (line for line in lines if line.get_marker() == marker)
        medians = rows.groupby("lag")["accuracy"].median()
        np.testing.assert_allclose(joined.get_ydata(orig=False), medians[lags])
        dots = np.concatenate([line.get_ydata(orig=False) for line in lines if line.get_marker() == "."])
        assert sorted(dots) == sorted(rows["accuracy"])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "16", "64", "offline"]
