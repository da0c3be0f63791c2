"""Coverage of intervals: committed numbers are today's, sampled and counted agree, the page holds them."""

import numpy as np
import pytest
from scipy import stats

from analysis.experiments.estimators import interval_coverage as coverage
from analysis.pages.estimator_page import PAGE, TABLES, filled, main
from analysis.tables.committed import load_committed
from testbed.errors import UserError
from testbed.estimators.intervals import Interval

EITHER = {**coverage.KNOWN_RANGE, **coverage.ANY_RANGE}


@pytest.fixture(scope="module")
def frame():
    return load_committed([coverage.NAME])[coverage.NAME].frame


def test_an_interval_holds_its_ends_and_nothing_beyond():
    found = Interval(np.array([0.0, 0.3, 0.2]), np.array([0.2, 0.4, np.inf]), 0.95, "x")
    assert coverage.inside(found, 0.2).tolist() == [True, False, True]
    assert coverage.inside(found, 0.4).tolist() == [False, True, True]


def test_counting_weighs_every_number_of_ones_by_its_chance():
    # Holds 0.25 for 1 or 2 ones of 4 only: C(4,1) 27/256 + C(4,2) 9/256.
    def make(terms):
        ones = terms.sum(-1)
        return Interval(np.where((ones == 1) | (ones == 2), 0.0, 0.9), np.ones(len(terms)), 0.95, "x")

    assert coverage.counted(make, 0.25, 4) == pytest.approx((4 * 27 + 6 * 9) / 256)


@pytest.mark.parametrize("law", ["two-point", "lognormal"])
def test_samples_come_from_their_law(law):
    # Six standard errors of the mean of M N draws: a false alarm of 2e-9.
    parameter, n = 0.5, 20
    terms, mean = coverage.draws(law, parameter, n)
    spread = np.sqrt(np.expm1(parameter**2)) if law == "lognormal" else 0.5
    assert terms.shape == (coverage.SAMPLES, n)
    assert abs(terms.mean() - mean) < 6 * spread / np.sqrt(terms.size)
    if law == "lognormal":
        assert abs(np.log(terms).std() - parameter) < 6 * parameter / np.sqrt(2 * terms.size)


@pytest.mark.parametrize("name", ["student", "hoeffding", "log_smoothing_bound"])
def test_counted_and_sampled_coverage_agree(name):
    share = coverage.counted(EITHER[name], 0.05, 20)
    terms, mean = coverage.draws("two-point", 0.05, 20)
    hits = int(coverage.inside(EITHER[name](terms), mean).sum())
    assert stats.binomtest(hits, coverage.SAMPLES, min(share, 1 - 1e-9)).pvalue > 1e-6


@pytest.mark.slow
def test_the_committed_coverage_is_todays(frame):
    # Of the bootstrap, which takes long, what is counted and one row of samples.
    long = (frame["interval"] == "bootstrap") & (frame["samples"] > 0)
    for row in frame[~long | (long & (frame["parameter"] == 2) & (frame["n"] == 20))].itertuples():
        again = coverage.row(row.interval, EITHER[row.interval], row.law, row.parameter, row.n)
        # Other versions of numpy and scipy may move an end across the mean in a few samples.
        assert again[4] == pytest.approx(row.coverage, abs=2e-3), row
        assert again[7] == row.samples


def test_intervals_with_a_guarantee_keep_it_and_approximate_ones_miss_where_weights_are_heavy(frame):
    kept = frame[~frame["interval"].isin(["student", "bootstrap"])]
    assert (kept["high"] >= 0.95).all()
    heavy = frame[frame["interval"].isin(["student", "bootstrap"]) & (frame["law"] == "lognormal")]
    ordered = heavy.pivot(index=["interval", "n"], columns="parameter", values="coverage").to_numpy()
    assert (np.diff(ordered, axis=1) < 0).all()
    assert (heavy.loc[heavy["parameter"] == 2, "high"] < 0.85).all()


def test_every_interval_is_shown_for_every_law_it_applies_to(frame):
    laws = len(coverage.SIZES) * (len(coverage.CHANCES) + len(coverage.SIGMAS))
    found = frame.groupby("interval").size().to_dict()
    assert found == {name: laws // (1 + (name in coverage.KNOWN_RANGE)) for name in EITHER}


def test_the_page_is_up_to_date():
    text = PAGE.read_text()
    assert filled(text) == text, "write it again: python -m analysis.pages.estimator_page"


def test_a_table_is_replaced_whole_and_text_stays(tmp_path):
    text = PAGE.read_text()
    page = tmp_path / "page.md"
    page.write_text(text.replace("| `ips` |", "| `old` |\n| `older` |"))
    assert main(page) == 0
    assert page.read_text() == text


def test_a_page_that_lacks_a_table_or_has_one_too_many_is_refused(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text().replace("<!-- table coverage -->", ""))
    assert main(page) == 2
    assert "lacks <!-- table coverage -->" in capsys.readouterr().err
    with pytest.raises(UserError, match="Unknown table of the page 'bandit'. Did you mean 'bandits'"):
        filled("<!-- table bandit -->\n<!-- end -->\n")
    assert set(TABLES) == {"bandits", "episodes", "coverage"}
