"""Bets, sequential coverage and variance: rates over every path, verdicts, and what cannot be tested."""

import itertools
import math

import numpy as np
import pytest
from support.refusals import refuses

from testbed.errors import UserError
from testbed.testing import assertions
from testbed.testing.assertions import Undecided, assert_coverage, assert_variance_below, min_num_intervals
from testbed.testing.draws import CHUNK, Stream, check_bounds, generator
from testbed.testing.e_process import SHARES, EProcess, SequentialMean, SequentialSide
from testbed.testing.sample_size import Spread, check_rates, min_discrepancy, min_num_one_sided
from testbed.testing.sequential import covers, differences, watch

LENGTH = 10
RATES = {"false_alarm": 0.1, "missed": 0.2}


def paths(length=LENGTH):
    return np.array(list(itertools.product([0.0, 1.0], repeat=length)))


def outcome(assertion, *args, **kwargs) -> str:
    """Return pass, fail or undecided."""
    try:
        assertion(*args, **kwargs)
    except AssertionError:
        return "fail"
    except Undecided:
        return "undecided"
    return "pass"


def chances(outcome_M, p) -> dict[str, float]:
    """Return the exact chance of each outcome when coins fall 1 with chance p."""
    chance_M = np.prod(np.where(paths() == 1, p, 1 - p), axis=1)
    assert chance_M.sum() == pytest.approx(1)
    return {name: float(chance_M[outcome_M == name].sum()) for name in ("pass", "fail", "undecided")}


def intervals(covers_N):
    """Return intervals that hold 0 where `covers_N` is 1."""
    low_N = np.where(np.asarray(covers_N) == 1, -1.0, 1.0)
    return low_N, low_N + 2


def coverage_sampler(p):
    return lambda rng, n: intervals(rng.random(n) < p)


def coin(p):
    return lambda rng, n: (rng.random(n) < p).astype(float)


@pytest.mark.slow
def test_sequential_coverage_keeps_both_rates_over_every_path():
    call = {"level": 0.8, "discrepancy": 0.6, "sequential": True, "max_samples": LENGTH, **RATES}
    found = np.array([outcome(assert_coverage, intervals(path), 0.0, **call) for path in paths()])
    for p in (0.8, 0.85, 0.95, 1.0):  # the level is held
        assert chances(found, p)["fail"] <= RATES["false_alarm"]
    for p in (0.2, 0.15, 0.05, 0.0):  # it lacks the discrepancy or more
        assert chances(found, p)["pass"] <= RATES["missed"]
    # Not for want of verdicts: each side is decided, and it is the right one that is decided.
    assert chances(found, 1.0)["pass"] > 0.9
    assert chances(found, 0.0)["fail"] > 0.9
    assert chances(found, 0.8)["fail"] > 0
    assert chances(found, 0.2)["pass"] > 0


@pytest.mark.slow
def test_sequential_variance_keeps_both_rates_over_every_path():
    # x lies 1/2 from its mean 1/2 where the path says 1, else on it: with chance q, Var x = q / 4.
    ends_N = np.tile([0.0, 1.0], LENGTH // 2)
    call = {"means": 0.5, "bounds": (0.0, 1.0), "discrepancy": 0.2, "sequential": True, **RATES}
    call["max_samples"] = LENGTH
    x = [np.where(path == 1, ends_N, 0.5) for path in paths()]
    found = np.array([outcome(assert_variance_below, x_N, 0.22, **call) for x_N in x])
    for q in (0.08, 0.04, 0.0):  # Var x <= 0.22 - 0.2
        assert chances(found, q)["fail"] <= RATES["false_alarm"]
    for q in (0.88, 0.94, 1.0):  # Var x >= 0.22
        assert chances(found, q)["pass"] <= RATES["missed"]
    assert chances(found, 0.0)["pass"] > 0.9
    assert chances(found, 0.08)["fail"] > 0
    assert chances(found, 0.88)["fail"] > 0.1


@pytest.mark.slow
def test_sequential_variance_of_a_pair_keeps_both_rates_over_every_path():
    # y lies 1/2 from its mean in every other draw, x where the path says 1: D is -1/4, 0 or 1/4.
    call = {"means": 0.5, "bounds": (0.0, 1.0), "discrepancy": 0.1, "sequential": True, **RATES}
    call["max_samples"] = LENGTH
    moved_M = paths()

    def decided(y_N):
        return np.array([outcome(assert_variance_below, 0.5 + path / 2, y_N, **call) for path in moved_M])

    always, half = decided(np.ones(LENGTH)), decided(np.tile([1.0, 0.5], LENGTH // 2))
    for q in (0.6, 0.3, 0.0):  # Var y = 1/4, Var x = q / 4
        assert chances(always, q)["fail"] <= RATES["false_alarm"]
    assert chances(always, 1.0)["pass"] == 0
    assert chances(always, 0.0)["pass"] == 1
    # Beside a y of half that variance each D is 1/4 or 0, or 0 or -1/4: at q = 1 none speaks for x.
    assert chances(half, 1.0)["pass"] == 0
    assert chances(half, 1.0)["fail"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(("good", "bad"), [(0.7, 0.3), (0.3, 0.7)])
def test_a_side_is_decided_at_its_first_crossing_whatever_the_chunks(good, bad):
    for path in paths(7):
        whole = SequentialSide(good, bad, (0, 1), 0.1, 0.2)
        whole.add(path)
        parts = SequentialSide(good, bad, (0, 1), 0.1, 0.2)
        for draw in path:
            parts.add(np.array([draw]))
        assert (whole.verdict, whole.n) == (parts.verdict, parts.n)
        small = good < bad
        alarm = EProcess(good, (0, 1), "above" if small else "below").add(path)
        proof = EProcess(bad, (0, 1), "below" if small else "above").add(path)
        crossed = np.flatnonzero((alarm >= math.log(10)) | (proof >= math.log(5)))
        assert whole.n == (crossed[0] + 1 if crossed.size else 7)
        expected = None if not crossed.size else "bad" if alarm[crossed[0]] >= math.log(10) else "good"
        assert whole.verdict == expected


def test_sides_that_are_equal_or_at_a_bound_are_refused():
    for good, bad in ((0.5, 0.5), (0.0, 0.5), (0.5, 1.0)):
        with pytest.raises(UserError, match="must differ and lie strictly within the bounds 0 and 1"):
            SequentialSide(good, bad, (0, 1), 0.1, 0.1)


def test_each_error_of_a_side_has_its_own_rate():
    for rates, sooner in (((1e-6, 0.1), "good"), ((0.1, 1e-6), "bad")):
        taken = {}
        for verdict, draw in (("good", 0.0), ("bad", 1.0)):
            test = SequentialSide(0.3, 0.7, (0, 1), *rates)
            test.add(np.full(100, draw))
            assert test.verdict == verdict
            taken[verdict] = test.n
        assert min(taken, key=taken.get) == sooner


def test_a_stream_gives_all_its_draws_each_chunk_twice_as_long_and_ends():
    for most, sizes in ((1, [1]), (CHUNK + 1, [CHUNK, 1]), (7 * CHUNK + 2, [CHUNK, 2 * CHUNK, 4 * CHUNK, 2])):
        parts = list(Stream(lambda rng, n: rng.random(n), 0, most))
        assert [x_N.size for x_N in parts] == sizes
    np.testing.assert_array_equal(np.concatenate(parts), generator(0).random(7 * CHUNK + 2))


def test_squares_are_about_the_mean_of_each_sampler_and_within_its_bounds():
    (difference_N,) = differences([1.0, 3.0], [4.0, 4.0], (1.0, 5.0), None, (0, 2))
    assert difference_N.tolist() == [-1.0, 3.0]
    (against_N,) = differences([1.0, 3.0, 9.0], 0.5, (1.0, 5.0), (1.0, 3.0), (0, 2))
    assert against_N.tolist() == [-0.5, 3.5]
    for x, y in (([1.0, 3.5], [2.0, 2.0]), ([1.0, 2.0], [2.0, 3.5]), ([0.5], 0.25)):
        refuses("outside the declared bounds 1 to 3", list, differences(x, y, (1.0, 1.0), (1.0, 3.0), (0, 2)))
    few = differences([1.0, 2.0, 3.0], [1.0, 2.0], (1.0, 1.0), None, (0, 3))
    refuses("3 and 2 draws cannot be paired", list, few)
    check_bounds(np.array([1.0, 3.0]), (1.0, 3.0))
    check_bounds(np.zeros(0), (1.0, 3.0))


def test_an_interval_holds_its_ends_and_must_be_one():
    low_N, high_N = np.array([0.0, 1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0, 3.0])
    assert covers((low_N, high_N), 2.0).tolist() == [0.0, 1.0, 1.0, 0.0]
    assert covers((low_N, high_N), 3.0).tolist() == [0.0, 0.0, 1.0, 1.0]
    sampler = covers(lambda rng, n: (low_N[:n], high_N[:n]), 1.0)
    assert sampler(None, 3).tolist() == [1.0, 1.0, 0.0]
    for pair in ((high_N, low_N), (low_N, high_N[:3]), (low_N[None], high_N[None]), (low_N * np.nan, high_N)):
        refuses("expected \\[N\\] both, low <= high, no NaN", covers, pair, 1.0)
    refuses("`actual` is None", covers, None, 1.0)


class Third:
    """A test that decides at the third draw."""

    verdict, n, log_e_value = None, 0, math.log(4)

    def add(self, x_N):
        self.n, self.verdict = min(self.n + x_N.size, 3), "bad" if self.n + x_N.size >= 3 else None


def test_a_test_of_a_mean_takes_up_to_four_times_the_draws_of_a_fixed_one(monkeypatch):
    asked = []
    monkeypatch.setattr(assertions, "watch", lambda *_, most, **__: asked.append(most) or (0.0, ""))
    call = {"bounds": (-1.0, 1.0), "discrepancy": 0.5, **RATES}
    for most in (None, 7):
        assertions.assert_unbiased(np.zeros(9), 0.0, sequential=True, max_samples=most, **call)
    assert asked == [4 * assertions.min_num_samples(**{**call, "discrepancy": 0.5}), 7]


def test_the_mean_is_that_of_the_draws_that_were_looked_at():
    chunks = iter([np.array([1.0, 2.0]), np.array([6.0, 50.0, 50.0]), np.array([7.0])])
    mean, e_value = watch(Third(), chunks, "aim", 0.01, most=6, discrepancy=0.5)
    assert (mean, e_value) == (3.0, "e-value 4, critical 100")
    assert next(chunks).tolist() == [7.0]
    said = "Undecided after 2 draws: mean 1.5, aim; e-value 4, critical 100. Raise max_samples .now 1,000. or"
    for told, few, most in (
        (said, [np.array([1.0, 2.0])], 1000),
        ("Undecided after 0 draws: mean 0,", [], 1),
    ):
        given = (Third(), iter(few), "aim", 0.01)
        refuses(told, watch, *given, most=most, discrepancy=0.5, error=Undecided)


def test_wealth_is_the_mean_over_bets_and_goes_on_from_chunk_to_chunk():
    x_N = np.array([1.0, 0.0, 1.0])
    for side, bets in (
        ("above", SHARES / 0.25),
        ("below", -SHARES / 0.75),
        ("both", np.concatenate([SHARES / 0.25, -SHARES / 0.75])),
    ):
        one = EProcess(0.25, (0.0, 1.0), side)
        wealth = [np.prod(1 + np.outer(bets, x_N[:n] - 0.25), axis=1).mean() for n in (1, 2, 3)]
        found = [*one.add(x_N[:2]), *one.add([]), *one.add(x_N[2:])]
        np.testing.assert_allclose(np.exp(found), wealth)

    for mean in (0.0, 1.0):
        refuses("expected strictly within the bounds 0 and 1", EProcess, mean, (0.0, 1.0))


def test_a_side_beyond_the_bounds_is_not_tested_and_draws_after_a_verdict_do_not_count():
    low = SequentialMean(0.25, 0.25, (0.0, 1.0), 0.1, 0.2)  # 0 is no mean within the bounds
    below = EProcess(0.5, (0.0, 1.0), "below")
    reached = np.flatnonzero(below.add(np.zeros(50)) >= math.log(5))[0] + 1
    low.add(np.zeros(reached - 1))
    assert (low.verdict, low.n) == (None, reached - 1)
    low.add(np.zeros(5))
    assert (low.verdict, low.n) == ("equivalent", reached)
    alarm = EProcess(0.25, (0.0, 1.0)).add(np.zeros(reached))
    assert low.log_e_value == pytest.approx(alarm[-1])
    low.add(np.ones(100))
    assert (low.verdict, low.n) == ("equivalent", reached)
    refuses("No mean within the bounds", SequentialMean, 0.5, 0.5, (0.0, 1.0), 0.1, 0.2)
    side = SequentialSide(0.3, 0.7, (0.0, 1.0), 0.1, 0.2)
    side.add(np.zeros(0))
    side.add(np.zeros(100))
    n = side.n
    side.add(np.ones(100))
    assert (side.verdict, side.n < 100, side.n) == ("good", True, n)


def test_plans_are_refused_at_the_ends_of_what_they_take():
    for rate in (0.0, 0.5):
        refuses(f"false_alarm is {rate:g}, expected", check_rates, rate, 0.1)
        refuses(f"missed is {rate:g}, expected", check_rates, 0.1, rate)
    refuses("n is 0, expected the number of draws", min_discrepancy, 0, std=1.0)
    z = 2.3263478740408408 + 1.6448536269514722  # of .01 and .05
    assert min_discrepancy(1, std=1.0, false_alarm=0.02, missed=0.05) == pytest.approx(z)
    one = min_num_one_sided(0.5, Spread(1.0), 0.01, 0.05)
    assert one == math.ceil((z / 0.5) ** 2) == 64
    for level, discrepancy in ((0.5, 0.5), (1.0, 0.5), (0.5, 0.0)):
        refuses("expected 0 < discrepancy < level < 1", min_num_intervals, level, discrepancy)
    refuses("std is -1, expected", Spread, -1.0)
    assert Spread(0.0).radius(4, 0.01) == 0.0
    refuses("expected finite low < high", Spread, None, (1.0, 1.0))


def test_coverage_stops_early_alarms_or_says_that_it_cannot_tell():
    call = {"level": 0.9, "sequential": True}
    assert_coverage(coverage_sampler(0.93), 0.0, **call)
    with pytest.raises(AssertionError, match=r"Coverage too low.*good 0.9, bad 0.85; e-value .*1e\+06"):
        assert_coverage(coverage_sampler(0.8), 0.0, **call)
    with pytest.raises(Undecided, match="Undecided after 50 draws"):
        assert_coverage(coverage_sampler(0.9), 0.0, max_samples=50, **call)
    asked = []

    def counted(rng, n):
        asked.append(n)
        return coverage_sampler(1.0)(rng, n)

    assert_coverage(counted, 0.0, **call)
    assert sum(asked) < min_num_intervals(0.9, 0.05)


def test_two_estimators_of_one_seed_are_paired_and_compared():
    def uniform(rng, n):
        return rng.random(n)

    def wide(rng, n):
        return np.round(rng.random(n))

    call = {"means": 0.5, "bounds": (0.0, 1.0), "discrepancy": 0.1, "sequential": True}
    assert_variance_below(uniform, wide, **call)  # 1/12 against 1/4
    with pytest.raises(AssertionError, match=r"Variance not below.*e-value"):
        assert_variance_below(wide, uniform, err_msg="mine", **call)
    seen = []

    def recorded(rng, n):
        seen.append(rng.random(n))
        return seen[-1]

    assert_variance_below(recorded, lambda rng, n: np.round(recorded(rng, n)), **call)
    np.testing.assert_array_equal(seen[0], seen[1])


def test_equal_variances_are_never_shown_to_be_lower():
    # D = 0 always: the alarm needs some thousand draws, a proof of D < 0 never comes.
    rates = {"false_alarm": 1e-300, "missed": 0.2}
    call = {"means": 0.5, "bounds": (0.0, 1.0), "discrepancy": 0.1, "sequential": True, **rates}
    draws_N = np.random.default_rng(0).random(5000)
    assert outcome(assert_variance_below, draws_N, draws_N, **call) == "fail"


BETS = {"means": 0.5, "bounds": (0, 1), "discrepancy": 0.1, "sequential": True}
REFUSED = {
    "needs `bounds`": lambda: assert_variance_below(coin(0.5), 0.3, **{**BETS, "bounds": None}, std=1.0),
    "nothing to test": lambda: assert_variance_below(coin(0.5), 0.3, **BETS),
    "cannot be paired": lambda: assert_variance_below(np.zeros(10), np.zeros(20), **BETS),
    "outside the declared bounds": lambda: assert_variance_below(
        lambda rng, n: 2 + rng.random(n), 0.2, **BETS
    ),
    "`actual` is None": lambda: assert_coverage(None, 0.0, level=0.9, sequential=True),
    "low <= high": lambda: assert_coverage(([1.0], [0.0]), 0.0, level=0.9, sequential=True),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_tested_sequentially_is_refused(message):
    refuses(message, REFUSED[message])


@pytest.mark.parametrize("p", [0.5, 0.3, 0.9])
def test_the_wealth_is_one_on_average_and_its_chance_to_reach_any_level_is_bounded(p):
    n = 10
    chance_M = np.prod(np.where(paths(n) == 1, p, 1 - p), axis=1)
    log_wealth_MN = np.array([EProcess(p, (0, 1)).add(path) for path in paths(n)])
    np.testing.assert_allclose(chance_M @ np.exp(log_wealth_MN), 1.0, rtol=1e-12)
    highest_M = log_wealth_MN.max(1)
    for level in np.exp(np.unique(highest_M)):
        if level > 1:
            assert chance_M @ (highest_M >= math.log(level) - 1e-12) <= 1 / level + 1e-12


@pytest.mark.parametrize(("side", "falls_for"), [("above", 0.2), ("below", 0.6)])
def test_a_one_sided_bet_loses_on_average_on_its_hypothesis_and_gains_off_it(side, falls_for):
    x = paths(8)
    log_wealth_M = np.array([EProcess(0.4, (0, 1), side).add(path)[-1] for path in x])

    def average(p):
        return np.prod(np.where(x == 1, p, 1 - p), axis=1) @ np.exp(log_wealth_M)

    assert average(falls_for) < 1 < average(0.8 - falls_for)
    assert average(0.4) == pytest.approx(1.0)


def test_bets_do_not_depend_on_how_the_draws_are_cut_into_chunks_or_on_the_unit():
    x = np.random.default_rng(3).random(50)
    whole = EProcess(0.4, (0, 1)).add(x)
    parts = EProcess(0.4, (0, 1))
    np.testing.assert_allclose(np.concatenate([parts.add(x[:7]), parts.add(x[7:7]), parts.add(x[7:])]), whole)
    np.testing.assert_allclose(EProcess(6.0, (-2, 18)).add(20 * x - 2), whole, rtol=1e-9)
    sides = [np.exp(EProcess(0.4, (0, 1), side).add(x)) for side in ("above", "below")]
    np.testing.assert_allclose(np.exp(whole), np.mean(sides, axis=0))


@pytest.mark.slow
def test_the_sequential_test_keeps_both_rates_over_every_path():
    x, found = paths(12), []
    for path in x:
        test = SequentialMean(0.5, 0.45, (0, 1), 0.1, 0.2)
        test.add(path)
        found.append(test.verdict)

    def chance(verdict, p):
        chance_M = np.prod(np.where(x == 1, p, 1 - p), axis=1)
        return chance_M[[each == verdict for each in found]].sum()

    assert chance("biased", 0.5) <= 0.1
    assert chance("equivalent", 0.95) <= 0.2
    assert chance("equivalent", 0.5) > 0.3
    assert chance("biased", 0.95) > 0.3


@pytest.mark.parametrize(("p", "verdict"), [(0.3, "equivalent"), (0.45, "biased")])
def test_a_verdict_comes_at_the_first_crossing_whatever_the_chunks(p, verdict):
    x = coin(p)(np.random.default_rng(1), 20_000)
    whole = SequentialMean(0.3, 0.1, (0, 1), 1e-6, 1e-2)
    whole.add(x)
    parts = SequentialMean(0.3, 0.1, (0, 1), 1e-6, 1e-2)
    for chunk in np.array_split(x, 400):
        parts.add(chunk)
        if parts.verdict:
            break
    assert (whole.verdict, whole.n) == (parts.verdict, parts.n) == (verdict, whole.n)
    assert whole.log_e_value == pytest.approx(parts.log_e_value)
    assert whole.n < 2000


def test_a_side_once_rejected_stays_rejected_in_later_chunks():
    # 15 ones reject a mean of 0.3 or less; the zeros that reject 0.7 or more come when that wealth is gone.
    x = np.repeat([1.0, 0.0], [15, 40])
    whole, parts = (SequentialMean(0.5, 0.2, (0, 1), 1e-6, 1e-2) for _ in range(2))
    whole.add(x)
    for draw in x:
        if parts.verdict is None:
            parts.add(np.array([draw]))
    assert (parts.verdict, parts.n) == (whole.verdict, whole.n)
    assert whole.verdict == "equivalent"
    assert EProcess(0.3, (0, 1), "above").add(x[: whole.n])[-1] < math.log(100)


def test_draws_after_the_verdict_are_ignored():
    test = SequentialMean(0.5, 0.2, (0, 1), 1e-6, 1e-2)
    test.add(np.ones(200))
    n, e_value = test.n, test.log_e_value
    assert test.verdict == "biased"
    test.add(np.tile([0.0, 1.0], 2000))
    assert (test.n, test.log_e_value, test.verdict) == (n, e_value, "biased")


def test_a_side_beyond_the_bounds_needs_no_evidence():
    test = SequentialMean(0.95, 0.1, (0, 1), 1e-6, 1e-2)
    test.add(np.ones(200))
    assert test.verdict == "equivalent"
    refuses("nothing to test", SequentialMean, 0.5, 0.6, (0, 1), 1e-6, 1e-2)
