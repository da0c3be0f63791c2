"""The assertions keep the rates they declare: by exact binomial sums and by enumeration of every path.

docs/testing-your-estimator.md: its snippets are a conftest and tests; they run, pass, and can fail.
"""

import contextlib
import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from support.refusals import refuses

from testbed.errors import UserError
from testbed.testing.assertions import (
    Undecided,
    assert_coverage,
    assert_equivalent,
    assert_unbiased,
    assert_variance_below,
    min_discrepancy,
    min_num_intervals,
    min_num_samples,
)
from testbed.testing.e_process import EProcess
from testbed.testing.normal_approximation import FACTOR, num_samples_for_normal
from testbed.testing.sample_size import Spread, fewest_covered

RATES = {"false_alarm": 0.02, "missed": 0.05}


def fails(assertion, *args, **kwargs) -> bool:
    try:
        assertion(*args, **kwargs)
    except AssertionError:
        return True
    return False


def coin(p):
    return lambda rng, n: (rng.random(n) < p).astype(float)


def normal(mean=0.0, std=1.0):
    return lambda rng, n: rng.normal(mean, std, n)


def chance_to_fail(assertion, n, p, *args, **kwargs) -> float:
    """Return the exact chance that the assertion fails on n coins with P(1) = p."""
    return sum(
        stats.binom.pmf(ones, n, p)
        for ones in range(n + 1)
        if fails(assertion, np.repeat([1.0, 0.0], [ones, n - ones]), *args, **kwargs)
    )


# Rates of the fixed tests


@pytest.mark.parametrize("p", [0.5, 0.2, 0.05])
@pytest.mark.parametrize("known", ["bounds", "both"])
def test_with_bounds_the_declared_rates_hold_exactly_on_coins(p, known):
    given = {"bounds": (0.0, 1.0), "std": math.sqrt(p * (1 - p)) if known == "both" else None}
    n = min_num_samples(0.15, **given, **RATES)
    call = {"discrepancy": 0.15, **given, **RATES}
    assert chance_to_fail(assert_unbiased, n, p, p, **call) <= 0.02
    if known == "bounds":  # with a std, the alternative must not vary more than declared
        assert 1 - chance_to_fail(assert_unbiased, n, p + 0.15, p, **call) <= 0.05
        call["margin"] = call.pop("discrepancy")
        assert chance_to_fail(assert_equivalent, n, p, p, **call) <= 0.02
        assert 1 - chance_to_fail(assert_equivalent, n, p + 0.15, p, **call) <= 0.05


def test_with_a_std_alone_the_rates_are_those_of_the_normal_law_and_nearly_met_on_coins():
    n = min_num_samples(0.1, std=0.5, **RATES)
    call = {"discrepancy": 0.1, "std": 0.5, **RATES}
    assert chance_to_fail(assert_unbiased, n, 0.5, 0.5, **call) == pytest.approx(0.02, rel=0.05)
    missed = 1 - chance_to_fail(assert_unbiased, n, 0.6, 0.5, **call)
    assert missed == pytest.approx(0.05, rel=0.1)  # coins vary less off 1/2


def test_at_the_least_number_of_draws_the_normal_law_is_right_up_to_its_factor():
    # The sum of n exponentials has a gamma law: skewness 2, excess kurtosis 6.
    for rate in (5e-7, 1e-3, 0.01):
        n, z = num_samples_for_normal(2.0, 6.0, rate), -stats.norm.ppf(rate)
        above = stats.gamma.sf(n + z * math.sqrt(n), n)
        assert 1.5 * rate < above < FACTOR * rate
        assert rate / 3 < stats.gamma.cdf(n - z * math.sqrt(n), n) < rate
    # A symmetric law with P(X = 0) = 1 - p, else -1 or 1: no skewness, excess kurtosis 1/p - 3.
    assert num_samples_for_normal(0.0, 1e4 - 3, 5e-7) > 1e5


@pytest.mark.slow
@pytest.mark.parametrize("discrepancy", [1.0, 0.3])
def test_heavy_draws_are_refused_rather_than_called_biased(discrepancy):
    # Log-normal weights, sigma = 2. By the normal law alone 33 and 19 of these 6000 batches are false alarms,
    # at a declared 1e-6.
    mean, std = math.exp(2), math.exp(2) * math.sqrt(math.expm1(4))
    n = min_num_samples(discrepancy, std=1.0)
    refused = 0
    for log_w_N in 2 * np.random.default_rng(0).normal(size=(6000, n)):
        with contextlib.suppress(UserError):
            refused += 1
            assert_unbiased(np.exp(log_w_N), mean, std=std, discrepancy=discrepancy * std)
            refused -= 1
    assert 300 < refused < 5000
    with pytest.raises(UserError, match="Give `bounds` of every draw"):
        assert_unbiased(np.append(np.zeros(n), n), 0.0, std=1.0, discrepancy=discrepancy)


def test_normal_draws_are_not_refused():
    for x_N in np.random.default_rng(1).normal(size=(500, 500)):
        assert_unbiased(x_N, 0.0, std=1.0, discrepancy=min_discrepancy(500, std=1.0) * 1.001)


def test_each_side_of_a_two_sided_test_must_be_normal_at_half_its_rate():
    # 5 of 1000 coins: the normal law is near enough for tails of .02 at 800 draws, for tails of .01 at 1688.
    coins = np.repeat([0.0, 1.0], [995, 5])
    known = {"std": float(coins.std()), "discrepancy": 1.0, "missed": 0.02}
    assert_unbiased(coins, 0.005, false_alarm=0.04, **known)
    refuses("that takes 1,688", assert_unbiased, coins, 0.005, false_alarm=0.02, **known)


def test_a_small_bias_seen_clearly_is_a_bias_and_still_equivalent():
    # 3 standard errors away with four times the planned draws: 0.38 of the margin.
    n = 4 * min_num_samples(0.1, std=1.0, **RATES)
    draws = np.full(n, 3 / math.sqrt(n))
    refuses("Biased", assert_unbiased, draws, 0.0, discrepancy=0.1, std=1.0, error=AssertionError, **RATES)
    assert_equivalent(draws, 0.0, margin=0.1, std=1.0, **RATES)


def test_with_the_planned_draws_both_decide_alike():
    n = min_num_samples(0.1, std=1.0, **RATES)
    for z, wrong in ((2.32, False), (2.34, True)):  # the critical value is 2.326
        draws = np.full(n, z / math.sqrt(n))
        assert fails(assert_unbiased, draws, 0.0, discrepancy=0.1, std=1.0, **RATES) is wrong
        assert fails(assert_equivalent, draws, 0.0, margin=0.1, std=1.0, **RATES) is wrong
    refuses("margin 0.1", assert_equivalent, draws, 0.0, margin=0.1, std=1.0, error=AssertionError, **RATES)


@pytest.mark.parametrize("level", [0.95, 0.8])
def test_coverage_keeps_both_rates_exactly(level):
    n = min_num_intervals(level, 0.1, **RATES)
    fewest = fewest_covered(n, level, 0.02)
    assert stats.binom.cdf(fewest - 1, n, level) <= 0.02 < stats.binom.cdf(fewest, n, level)
    assert stats.binom.sf(fewest - 1, n, level - 0.1) <= 0.05
    smaller = n * 97 // 100
    assert stats.binom.sf(fewest_covered(smaller, level, 0.02) - 1, smaller, level - 0.1) > 0.05
    intervals = np.zeros(n), np.ones(n)
    for covered, verdict in ((fewest, False), (fewest - 1, True)):
        low = intervals[0] + 2 * (np.arange(n) >= covered)
        call = {"level": level, "discrepancy": 0.1, **RATES}
        assert fails(assert_coverage, (low, low + 1), 0.5, **call) is verdict


def test_planning_agrees_with_the_textbook_and_with_itself():
    # ((z_{1 - a/2} + z_{1 - b}) std / d)^2 with z = 4.8916 and 2.3263.
    assert min_num_samples(0.1, std=1.0) == math.ceil(((4.891638 + 2.326348) / 0.1) ** 2) == 5210
    for given in ({"std": 2.0}, {"bounds": (-1.0, 3.0)}, {"std": 0.1, "bounds": (-1.0, 3.0)}):
        n = min_num_samples(0.25, **given)
        assert min_discrepancy(n, **given) <= 0.25 < min_discrepancy(n - 1, **given)
    # Width 2, 8 draws, rate e^-4: 2 sqrt(4 / 16), and .1 sqrt(2 4 / 8) + 2 4 / 24.
    assert Spread(None, (0, 2)).radius(8, math.exp(-4)) == pytest.approx(1.0, rel=1e-12)
    assert Spread(0.1, (0, 2)).radius(8, math.exp(-4)) == pytest.approx(0.1 + 1 / 3, rel=1e-12)
    assert min_num_samples(0.05, std=1.0) / min_num_samples(0.1, std=1.0) == pytest.approx(4, rel=1e-3)
    # A small deviation makes Bernstein's bound need far fewer draws than Hoeffding's; a large one, as many.
    assert min_num_samples(0.1, bounds=(0, 1), std=0.05) < min_num_samples(0.1, bounds=(0, 1)) / 5
    assert min_num_samples(0.1, bounds=(0, 1), std=0.5) == min_num_samples(0.1, bounds=(0, 1))


def test_bernstein_and_hoeffding_bound_the_binomial_tail():
    for p, n in itertools.product((0.05, 0.5, 0.9), (20, 200)):
        for spread in (Spread(math.sqrt(p * (1 - p)), (0, 1)), Spread(None, (0, 1))):
            t = spread.radius(n, 0.01)
            assert stats.binom.sf(math.ceil(n * (p + t) - 1e-9) - 1, n, p) <= 0.01
            assert stats.binom.cdf(math.floor(n * (p - t) + 1e-9), n, p) <= 0.01


def test_sequential_assertions_stop_early_alarm_or_say_that_they_cannot_tell():
    call = {"bounds": (0, 1), "discrepancy": 0.05, "sequential": True}
    assert_unbiased(coin(0.3), 0.3, **call)
    refuses(r"e-value .*critical 1e\+06", assert_unbiased, coin(0.4), 0.3, error=AssertionError, **call)
    with pytest.raises(Undecided, match="Undecided after 500 draws"):
        assert_unbiased(coin(0.3), 0.3, max_samples=500, **call)
    with pytest.raises(AssertionError, match="Not equivalent"):
        assert_equivalent(coin(0.4), 0.3, bounds=(0, 1), margin=0.05, sequential=True)
    refuses("needs `bounds`", assert_unbiased, normal(), 0.0, std=1.0, discrepancy=0.1, sequential=True)
    draws = coin(0.3)(np.random.default_rng(0), 5000)
    assert_unbiased(draws, 0.3, **call)


def test_common_random_numbers_reach_both_samplers():
    seen = []

    def recorded(scale):
        def sampler(rng, n):
            seen.append(rng.normal(size=n))
            return scale * seen[-1]

        return sampler

    # Var of x^2 - 4 x^2 is 9 * 2 for a normal x.
    call = {"means": 0.0, "std": math.sqrt(18), "discrepancy": 3.0, "seed": 5}
    assert_variance_below(recorded(1.0), recorded(2.0), **call)
    np.testing.assert_array_equal(seen[0], seen[1])
    with pytest.raises(AssertionError, match="Not shown to have less variance"):
        assert_variance_below(recorded(2.0), recorded(1.0), **call)
    with pytest.raises(AssertionError, match="my estimator"):
        assert_variance_below(recorded(1.0), recorded(1.0), err_msg="my estimator", **call)


def test_the_variance_rates_hold_exactly_on_coins():
    # Coins with P(1) = p about their own mean: D = (x - p)^2 - 1/4 lies in [-1/4, max(p, 1-p)^2 - 1/4].
    call = {"discrepancy": 0.16, "bounds": (0.0, 1.0), **RATES}

    def chance(n, p):
        return chance_to_fail(assert_variance_below, n, p, 0.25, means=p, **call)

    from testbed.testing.sample_size import min_num_one_sided

    n = min_num_one_sided(0.16, Spread(None, (-0.25, 0.9**2 - 0.25)), 0.02, 0.05)
    assert chance(n, 0.1) <= 0.02  # variance 0.09, lower by 0.16
    n = min_num_one_sided(0.16, Spread(None, (-0.25, 0.0)), 0.02, 0.05)
    assert 1 - chance(n, 0.5) <= 0.05  # variance 1/4, not lower


def test_means_of_both_estimators_may_differ():
    call = {"std": 15.0, "discrepancy": 2.0, "means": (7.0, -1.0)}
    assert_variance_below(normal(7.0, 1.0), normal(-1.0, 2.0), **call)
    with pytest.raises(AssertionError, match="less variance"):
        assert_variance_below(normal(7.0, 1.0), normal(-1.0, 2.0), **{**call, "means": (0.0, -1.0)})


def test_an_oracle_decides_without_draws():
    assert_unbiased(None, 0.75, exact=0.75 + 1e-12)
    assert_equivalent(None, 0.75, margin=0.1, exact=0.8)
    assert_variance_below(None, 2.0, exact=2.0)
    assert_coverage(None, 0.0, level=0.95, exact=0.95)
    assert_unbiased(None, 0.0, exact=1e-17)
    assert_unbiased(None, 1e-9, exact=0.0, atol=2e-9)
    for call in (
        lambda: assert_unbiased(None, 1e-9, exact=0.0, err_msg="mine"),
        lambda: assert_unbiased(None, 0.0, exact=1e-9, err_msg="mine"),
        lambda: assert_unbiased(None, 0.0, exact=0.11, atol=0.1, err_msg="mine"),
        lambda: assert_unbiased(None, 1e-12, exact=1.1e-12, err_msg="mine"),
        lambda: assert_unbiased(None, 0.75, exact=0.7501, err_msg="mine"),
        lambda: assert_equivalent(None, 0.75, margin=0.05, exact=0.8, err_msg="mine"),
        lambda: assert_variance_below(None, 2.0, exact=2.001, err_msg="mine"),
        lambda: assert_coverage(None, 0.0, level=0.95, exact=0.9499, err_msg="mine"),
    ):
        refuses(r"exactly [\s\S]*mine", call, error=AssertionError)


def test_no_argument_is_ignored_and_no_draws_are_too_few():
    refuses("`atol` is for `exact` alone", assert_unbiased, normal(), 0.0, std=1.0, discrepancy=0.1, atol=1.0)

    call = {"means": 0.0, "discrepancy": 0.5, "bounds": (-1.0, 1.0)}
    refuses("0 draws cannot tell", assert_variance_below, np.zeros(0), 1.0, **call)


def test_a_failure_states_estimate_expected_z_n_and_rates():
    with pytest.raises(AssertionError) as caught:
        assert_unbiased(normal(0.2), 0.0, std=1.0, discrepancy=0.1, err_msg="snips")
    text = str(caught.value)
    for part in ("expected 0,", "z = 1", "critical 4.89", "n = 5,210", "false alarm 1e-06", "chance 0.01"):
        assert part in text
    assert text.endswith("snips")


def test_the_same_seed_gives_the_same_draws_and_the_global_generator_is_left_alone():
    seen = []

    def sampler(rng, n):
        seen.append(rng.random(n))
        return seen[-1]

    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    for seed in (1, 1, np.random.SeedSequence(1), 2, (1, 2)):
        assert_unbiased(sampler, 0.5, bounds=(0, 1), discrepancy=0.1, seed=seed)
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002
    np.testing.assert_array_equal(seen[0], seen[1])
    np.testing.assert_array_equal(seen[0], seen[2])
    assert (seen[0] != seen[3]).any()
    assert (seen[0] != seen[4]).any()


@pytest.mark.parametrize(
    "call",
    [lambda: assert_unbiased(normal(), 0.0, discrepancy=0.1),
     lambda: assert_unbiased(normal(), 0.0, std=1.0),
     lambda: assert_unbiased(normal(), 0.0, std=1.0, discrepancy=0.0),
     lambda: assert_unbiased(normal(), 0.0, std=-1.0, discrepancy=1.0),
     lambda: assert_unbiased(normal(), 0.0, std=1.0, discrepancy=1e-9),
     lambda: assert_unbiased(normal(), 0.0, std=1.0, discrepancy=1.0, missed=0.5),
     lambda: assert_unbiased(None, 0.0, std=1.0, discrepancy=1.0),
     lambda: assert_unbiased(np.zeros(9), 0.0, std=1.0, discrepancy=0.1),
     lambda: assert_unbiased([[0.0]], 0.0, std=1.0, discrepancy=9.0),
     lambda: assert_unbiased([np.nan], 0.0, std=1e-3, discrepancy=9.0),
     lambda: assert_unbiased(lambda rng, n: [0.0], 0.0, std=1.0, discrepancy=0.1),
     lambda: assert_unbiased(lambda rng, n: [np.nan] * n, 0.0, std=1, discrepancy=0.1),
     lambda: assert_unbiased(normal(), 0.0, bounds=(-1, 1), discrepancy=0.5),
     lambda: assert_unbiased(normal(), 0.0, bounds=(1, 1), discrepancy=0.5),
     lambda: assert_variance_below(normal(), 4.0, std=1.0, discrepancy=1.0),
     lambda: assert_variance_below([0.0] * 99, [0.0] * 98, means=0, std=1, discrepancy=2),
     lambda: assert_coverage(None, 0.0, level=0.95),
     lambda: assert_coverage(([1.0], [0.0]), 0.0, level=0.95),
     lambda: assert_coverage(([0.0], [1.0]), 0.0, level=0.95), lambda: min_num_intervals(0.95, 0.99),
     lambda: EProcess(1.0, (0, 1)), lambda: EProcess(0.5, (0, 1), "left"),
     lambda: EProcess(0.5, (0, 1)).add([1.5])],
)  # fmt: skip
def test_a_test_that_could_not_tell_right_from_wrong_is_refused(call):
    refuses(".", call)


ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "testing-your-estimator.md").read_text()
CONFTEST, FIRST, *OTHERS = re.findall(r"```python\n(.*?)```", PAGE, re.S)


pytest_plugins = ["pytester"]


@pytest.fixture
def run(pytester, monkeypatch):
    """What pytest prints in a folder of the reader's own, with the conftest of the page."""
    monkeypatch.setenv("COLUMNS", "300")

    def printed(tests: dict[str, str], *options: str) -> str:
        for name, text in {"conftest.py": CONFTEST, **tests}.items():
            (pytester.path / name).write_text(text)
        done = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider", *options)
        return "\n".join(done.outlines + done.errlines)

    return printed


def test_every_snippet_passes_in_a_suite_of_the_readers_own(run):
    tests = {f"test_{index}.py": text for index, text in enumerate([FIRST, *OTHERS])}
    assert "5 passed" in run(tests)


def test_an_estimator_with_the_ratio_inverted_fails_with_the_message_on_the_page(run):
    wrong = FIRST.replace("PI[action] / MU[action]", "MU[action] / PI[action]")
    assert wrong != FIRST
    text = run({"test_wrong.py": wrong})
    assert "1 failed" in text
    for line in re.search(r"```text\nAssertionError: (.*?)```", PAGE, re.S)[1].splitlines():
        numbers = re.sub(r"[-\d.]+\d", "#", line.split(" (z")[0])
        assert numbers in re.sub(r"[-\d.]+\d", "#", text)


def test_the_first_snippet_has_ten_lines():
    assert len([line for line in FIRST.splitlines() if line]) <= 10


def test_the_options_set_the_rates_and_the_seed_is_the_tests_own(run):
    test = (
        "import numpy as np\n"
        "def draw(rates):\n"
        "    first = np.random.default_rng(rates['seed']).random()\n"
        "    print('SEEN', rates['false_alarm'], rates['missed'], first)\n"
        "def test_a(declared_rates): draw(declared_rates)\n"
        "def test_b(declared_rates): draw(declared_rates)\n"
    )

    def seen(*options):
        return re.findall(r"SEEN (\S+) (\S+) (\S+)", run({"test_c.py": test}, "-s", *options))

    plain, again = seen(), seen("--false-alarm", "1e-3", "--missed", "0.2")
    rotated = seen("--estimator-seed", "1")
    assert [(float(a), float(m)) for a, m, _ in plain] == [(1e-6, 1e-2)] * 2
    assert [(float(a), float(m)) for a, m, _ in again] == [(1e-3, 0.2)] * 2
    draws = [[x for _, _, x in each] for each in (plain, again, rotated)]
    assert draws[0] == draws[1]
    assert len({*draws[0], *draws[2]}) == 4


def test_the_standard_deviation_on_the_page_is_that_of_the_bandit():
    mu, pi = np.array([0.75, 0.25]), np.array([0.25, 0.75])
    estimate = pi / mu * np.array([0.0, 1.0])
    assert_unbiased(None, 27 / 16, exact=mu @ estimate**2 - (mu @ estimate) ** 2)
    with pytest.raises(AssertionError):
        assert_unbiased(None, 0.75, exact=mu @ (mu / pi * np.array([0.0, 1.0])))
