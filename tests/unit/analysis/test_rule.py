"""The rule: at most one in twenty of the decided claims is wrong, however claims hang together.

E-values: closed forms are the integrals, their mean under the null is 1, and thresholds are monotone.
"""

import dataclasses
import itertools
import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats
from support.refusals import refuses

from analysis.judging import bets, claims, replication, rule
from analysis.judging import e_values as evidence_module
from analysis.judging.claims import CLAIMS, look
from analysis.judging.e_values import (
    DIRECTION,
    MEAN,
    MEDIAN,
    MISSED,
    NONE,
    REFUTED,
    SHARE,
    SMALLER,
    SUPPORTED,
    UNDECIDED,
    Evidence,
    exceeds,
)


def test_the_threshold_is_the_smallest_step_at_which_enough_claims_agree():
    # Of 10 claims, 2 * 10 / (.05 * 80) = 5 must have e >= 80; at 70 it would be 5.7.
    assert rule.threshold([90, 90, 90, 90, 90], 10) == 80
    assert rule.threshold([80.0] * 5, 10) == 80  # at the step is enough
    assert rule.threshold([90, 90, 90, 90], 10) == float("inf")
    assert rule.threshold([1e6] * 4, 10) == 100
    assert rule.threshold([], 10) == float("inf")


def test_the_first_word_that_reaches_the_threshold_is_the_verdict():
    said = (SUPPORTED, 19.9), (SMALLER, 20.0), (REFUTED, 30.0)
    found = [rule.verdict(at, *said) for at in (19.0, 20.0, 20.1, 30.1)]
    assert found == [SUPPORTED, SMALLER, REFUTED, UNDECIDED]
    assert rule.verdict(0.0) == UNDECIDED


def test_every_claim_splits_a_table_at_its_own_first_fresh_seed():
    frame = pd.DataFrame({"seed": range(6)})
    for fresh in (4, 2):
        (first, again), _ = claims._split(SimpleNamespace(promises={"fresh": fresh}), frame)
        assert (len(first), len(again)) == (fresh, 6 - fresh)


def test_an_experiment_without_claims_has_none_to_judge(monkeypatch):
    monkeypatch.setattr(claims, "EXPERIMENTS", {"nothing-asked": SimpleNamespace(claims={})})
    refuses("claim", claims.matching, "nothing-asked")


def test_a_new_claim_without_an_effect_moves_no_threshold():
    found = [1e4] * 60
    assert rule.threshold(found, 100) == rule.threshold([*found, 1.0], 101)


def evidence(e, fresh):
    runs = () if fresh is None else (Evidence(0, 0, 0, 1, ""), Evidence(0, 0, 0, 1, "", e=fresh))
    return Evidence(0, 0, 0, 1, "", e=e, runs=runs)


@pytest.mark.parametrize(
    ("e", "fresh", "expected"),
    [({SUPPORTED: 500.0, REFUTED: 0.1}, {SUPPORTED: 3.0, REFUTED: 0.1}, (SUPPORTED, 500.0)),
     ({SUPPORTED: 500.0, REFUTED: 0.1}, {SUPPORTED: 1.0, REFUTED: 0.9}, (UNDECIDED, 0.0)),
     ({SUPPORTED: 0.2, REFUTED: 80.0}, {SUPPORTED: 0.2, REFUTED: 9.0}, (REFUTED, 80.0)),
     ({NONE: 1e9, SMALLER: 300.0}, {NONE: 2.0, SMALLER: 2.0}, (SMALLER, 300.0)),
     ({NONE: 1e9, SMALLER: 100.0}, {NONE: 2.0, SMALLER: 2.0}, (NONE, 1e9)),
     ({SUPPORTED: 1e9}, None, (UNDECIDED, 0.0)), ({}, {}, (UNDECIDED, 0.0))],
)  # fmt: skip
def test_only_a_word_to_which_the_fresh_seeds_point_counts(e, fresh, expected):
    assert rule.leaning(evidence(e, fresh)) == expected


def test_two_runs_are_judged_as_one_sequence_of_units():
    entry = CLAIMS["staleness-costs-grpo-accuracy"]
    import pandas as pd

    def table(seeds):
        return pd.DataFrame(
            {"recipe": "grpo", "lag": lag, "seed": seed, "accuracy": 0.9 - 0.3 * (lag > 0) - seed / 1e5}
            for seed in seeds
            for lag in (0, 128)
        )

    both = look(entry, table([*range(100, 116), *range(1000, 1016)]))
    assert [run.n for run in both.runs] == [16, 16]
    first, fresh = (run.e[SUPPORTED] for run in both.runs)
    alone = look(entry, table(range(100, 132)))
    assert both.e == pytest.approx(alone.e)
    assert both.e[SUPPORTED] > first * fresh, "the second run's bets start with what the first has learned"
    assert not alone.runs


CLAIMS_ON_PAGE, PAGES, NULL = 400, 6, 3
"""Every third claim has no effect. Claims of one experiment share seeds and a baseline arm."""


def page(rng):
    """Return (is wrong, e-value) of the word and the half word of every claim, each looked at in blocks."""
    found = []
    for experiment in range(CLAIMS_ON_PAGE // 8):
        baseline_N, shared_N = rng.normal(size=64), rng.normal(size=64)
        for claim in range(8):
            margin = 0.5 * (claim % 2)
            null = (experiment * 8 + claim) % NULL == 0
            gap = rng.choice([0.0, margin]) if null else rng.choice([0.5, 1.0, 2.0]) * rng.choice([-1, 1])
            own_N = rng.normal(size=64)
            x_N = np.sqrt(0.25) * (baseline_N + shared_N) + np.sqrt(0.5) * own_N + gap
            said = _in_blocks(x_N, margin)
            found.append([(word in untrue(gap, margin), e) for word, e in said])
    return found


def untrue(gap, margin):
    """Return the words that are wrong of the claim that a gap is above a margin."""
    true = {
        SUPPORTED: gap > margin, SMALLER: 0 < gap < margin, NONE: -margin < gap < margin, REFUTED: gap < 0,
        DIRECTION: gap > 0, MISSED: gap < margin,
    }  # fmt: skip
    return {word for word, holds in true.items() if not holds}


def _in_blocks(x_N, margin, block=8):
    """Return the word and the half word, with e-values, by a stopping rule of two runs of up to 32 units."""
    first = x_N[:32]
    for n in range(block, 33, block):
        first = x_N[:n]
        if rule.strongest(exceeds(first, margin, "", MEDIAN)) >= rule.FIRST_RUN:
            break
    for n in range(block, 33, block):
        fresh = x_N[32 : 32 + n]
        runs = tuple(exceeds(run, margin, "", MEDIAN) for run in (first, fresh))
        both = dataclasses.replace(exceeds(np.concatenate([first, fresh]), margin, "", MEDIAN), runs=runs)
        if rule.leaning(both)[1] >= rule.ENOUGH:
            break
    return rule.leaning(both), rule.half(both)


@pytest.mark.slow
def test_of_pages_with_shared_seeds_and_arms_one_decided_claim_in_twenty_is_wrong_at_most(monkeypatch):
    # Intervals cost most of the time and say nothing here.
    quick = dataclasses.replace(evidence_module.MEDIAN, interval=lambda _: (0.0, 0.0))
    monkeypatch.setattr("analysis.judging.comparisons.MEDIAN", quick)
    rng, wrong, shares = np.random.default_rng(7), [], []
    for _ in range(PAGES):
        found = page(rng)
        at = rule.threshold((max(e for _, e in said) for said in found), CLAIMS_ON_PAGE)
        reached = [[is_wrong for is_wrong, e in said if e >= at] for said in found]
        decided = [said[0] for said in reached if said]
        wrong.append(np.mean(decided))
        shares.append(len(decided) / CLAIMS_ON_PAGE)
    assert np.mean(wrong) <= 0.05
    assert np.mean(shares) >= 0.5, "two thirds have an effect, a third of these half a standard deviation"


@pytest.mark.parametrize(("won", "lost", "chance"), [(3, 1, 0.5), (0, 4, 0.5), (7, 2, 0.3), (5, 9, 0.8)])
def test_the_bets_on_shares_are_the_mixture_over_all_larger_chances(won, lost, chance):
    above, below = bets.shares(won, lost, chance)
    null = chance**won * (1 - chance) ** lost
    for found, low, high in ((above, chance, 1.0), (below, 0.0, chance)):
        mixed, _ = integrate.quad(lambda p: p**won * (1 - p) ** lost, low, high)
        assert found == pytest.approx(mixed / (high - low) / null, rel=1e-9)


def test_bets_on_the_median_stay_fair_at_any_stopping_time():
    # Every sequence of 12 signs, stopped at the first look of three at which wealth is above 3.
    mean = 0.0
    for signs in itertools.product([-1.0, 1.0], repeat=12):
        for n in (4, 8, 12):
            above, _ = bets.median(signs[:n], 0.0)
            if above >= 3 or n == 12:
                mean += above / 2**12
                break
    assert mean == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("values", [(0.3, 1.1, -0.2, 0.9, 0.4), (1.0, 1.3, 0.8, 1.1, 0.9)])
def test_bets_on_the_mean_are_the_mixture_of_noncentral_t_densities(values):
    x_N = np.array(values)
    student = x_N.mean() / x_N.std(ddof=1) * math.sqrt(5)
    d_K = np.linspace(1e-6, 9, 20_001)
    for found, sign in zip(bets.mean(x_N, 0.0), (1, -1), strict=True):
        ratio_K = stats.nct.pdf(sign * student, 4, math.sqrt(5) * d_K) / stats.t.pdf(student, 4)
        assert found == pytest.approx(integrate.trapezoid(ratio_K * 2 * stats.norm.pdf(d_K), d_K), rel=1e-4)


@pytest.mark.parametrize("values", [[], [0.7]])
def test_one_unit_is_no_bet_on_a_mean(values):
    assert bets.mean(values, 0.0) == (1.0, 1.0)


def test_equal_units_are_bet_on_by_their_signs():
    assert bets.mean([0.7] * 9, 0.0) == bets.shares(9, 0)
    assert bets.mean([0.7] * 9, 0.7) == (1.0, 1.0)


@pytest.mark.parametrize("bet", [bets.median, bets.mean])
def test_what_lies_above_falls_in_the_threshold_and_what_lies_below_rises(bet):
    x_N = np.random.default_rng(3).uniform(-0.4, 0.8, 14)
    above_T, below_T = np.array([bet(x_N, t) for t in np.linspace(-0.8, 0.8, 33)]).T
    assert np.all(np.diff(above_T) <= 1e-9)
    assert np.all(np.diff(below_T) >= -1e-9)


def test_a_confidence_sequence_of_a_share_narrows_around_it():
    won_N = np.tile([1, 1, 1, 0], 40)
    low, high = bets.share_sequence(won_N)
    assert 0.55 < low < 0.75 < high < 0.9
    assert bets.share_sequence([0, 1])[0] == 0.0
    assert bets.share_sequence([1, 0])[1] == 1.0


def test_a_unit_at_the_threshold_loses_both_bets_on_a_median():
    above, below = bets.median([0.0, 0.0, 1.0, 1.0, 1.0, -1.0], 0.0)
    assert (above, below) == (bets.shares(3, 3)[0], bets.shares(1, 5)[0])
    assert bets.median([*[0.0] * 91, *[1.0] * 9], 0.0)[0] < 1  # the median is 0


@pytest.mark.parametrize("n", [10, 1_000, 1_000_000])
def test_bets_on_a_mean_agree_with_a_dense_quadrature(n):
    statistic, s_K = 3.0, np.linspace(max(0.0, math.sqrt(n) - 60), math.sqrt(n) + 60, 400_001)[1:]
    x = statistic / math.hypot(statistic, math.sqrt(n - 1))
    slope_K = math.sqrt(n) * x * s_K
    log_K = (
        stats.chi.logpdf(s_K, n) + slope_K**2 / (2 * (n + 1)) + stats.norm.logcdf(slope_K / math.sqrt(n + 1))
    )
    dense = 2 / math.sqrt(n + 1) * np.trapezoid(np.exp(log_K), s_K)
    assert bets.at_statistic(statistic, n) == pytest.approx(dense, rel=1e-6)


def test_no_share_is_bet_to_be_above_one_or_below_nothing():
    won_N = np.array([1.0, 1.0, 0.0])
    assert [SHARE.bet(won_N, t) for t in (-0.5, 0.0, 1.0, 1.5)] == [(1.0, 1.0)] * 4
    assert SHARE.bet(won_N, 0.25) == bets.shares(2, 1, 0.25)


def test_two_bets_that_a_number_is_below_share_a_stake_where_several_cells_may_show_equality():
    # With one cell at the margin and one at 0, "refuted" and "no difference" are wrong by different bets.
    x = np.random.default_rng(20).normal(-0.2, 0.1, 40)
    one, two = (exceeds(groups, 0.5, "", MEAN) for groups in (x, {"a": x, "b": x}))
    assert two.e[REFUTED] == one.e[REFUTED] / 2
    assert two.half[MISSED] == one.half[MISSED] / 2
    assert two.e[SUPPORTED] == one.e[SUPPORTED]
    assert two.e[NONE] == min(one.e[NONE], two.half[MISSED])
    level, levels = (exceeds(groups, 0.5, "", MEAN, null=0.5) for groups in (x, {"a": x, "b": x}))
    assert levels.e[REFUTED] == level.e[REFUTED]  # a level has no band of equality


def test_an_end_of_a_median_s_sequence_appears_with_its_bet_and_stays():
    """Both sides at 5 % together: each end needs 2 / level, at its largest wealth so far."""
    sizes = range(1, 12)
    ends = [bets.median_sequence(np.ones(n))[0] > -math.inf for n in sizes]
    assert ends == [bets.median(np.ones(n), 0.5)[0] >= 40 for n in sizes]
    assert ends == [bets.median_sequence(np.ones(n))[1] < math.inf for n in sizes]
    assert 0 < sum(ends) < len(sizes)
    assert bets.median_sequence([*np.ones(12), *np.zeros(12)])[0] == 1.0


@pytest.mark.parametrize(
    ("gains", "word", "half"),
    [((0.2, 0.8), SMALLER, DIRECTION), ((0.7, 1.3), UNDECIDED, DIRECTION), ((-1.5, 0.5), UNDECIDED, MISSED)],
)
def test_half_words_tell_the_one_end_of_an_effect_that_is_known(gains, word, half):
    x_N = np.tile(gains, 32)  # gains of at least 1 are asked
    runs = tuple(exceeds(run, 1.0, "", MEDIAN) for run in (x_N[:32], x_N[32:]))
    both = dataclasses.replace(exceeds(x_N, 1.0, "", MEDIAN), runs=runs)
    leans, e = rule.leaning(both)
    assert (leans if e >= rule.USUAL else UNDECIDED) == word
    assert rule.half(both)[0] == half
    assert rule.half(both)[1] >= rule.USUAL
    assert rule.verdict(rule.USUAL, (leans, e), rule.half(both)) == (half if word == UNDECIDED else word)


def test_a_half_word_needs_fresh_seeds_that_repeat_it():
    run = Evidence(0.0, 0.0, 0.0, 8, "", half={DIRECTION: 1e9})
    fresh = Evidence(0.0, 0.0, 0.0, 8, "", half={DIRECTION: 0.9})
    assert rule.half(dataclasses.replace(run, runs=(run, fresh))) == ("", 0.0)


def test_rows_of_both_runs_have_seeds_of_their_own():
    def rows(seeds):
        return [pd.DataFrame({"seed": [seed], "x": [2 * seed]}) for seed in seeds]

    found = replication.repeated(rows, 3)
    assert list(found) == ["run", "seed", "x"]
    assert found["run"].tolist() == ["first"] * 3 + ["replication"] * 3
    assert found["seed"].tolist() == [0, 1, 2, 1_000_000, 1_000_001, 1_000_002]
    assert (found["x"] == 2 * found["seed"]).all()
