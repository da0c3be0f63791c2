"""Bugs planted in the coverage of intervals and in the writer of docs/estimators.md."""

from mutants.mutant import Mutant

TABLE, PAGE, TESTS = (
    "analysis/experiments/estimators/interval_coverage.py",
    "analysis/pages/estimator_page.py",
    "tests/experiments/test_coverage_table.py",
)

MUTANTS = (
    Mutant("coverage-open-ends", TABLE, "found.low <= mean + SLACK", "found.low < mean - SLACK", TESTS),
    Mutant("coverage-of-the-lower-end-alone", TABLE, " & (mean - SLACK <= found.high)", "", TESTS),
    Mutant("coverage-counts-every-sample-alike", TABLE, "stats.binom.pmf(ones_R, n, chance)", "np.full(n + 1, 1 / (n + 1))", TESTS),
    Mutant("coverage-never-without-a-one", TABLE, "np.arange(n) < ones_R[:, None]", "np.arange(n) <= ones_R[:, None]", TESTS),
    Mutant("coverage-lognormal-mean-is-not-one", TABLE, "- parameter**2 / 2)", "- parameter**2)", TESTS),
    Mutant("coverage-counts-what-has-an-order", TABLE, "and name not in IN_ORDER", "", TESTS),
    Mutant("coverage-page-keeps-the-old-table", PAGE, "+ TABLES[match[2]]() +", "+ match[0].partition('-->')[2].partition('<!--')[0].lstrip() +", TESTS),
    Mutant("coverage-page-without-a-place", PAGE, "if missing := sorted(set(TABLES) - set(found)):", "if missing := []:", TESTS),
    Mutant("coverage-page-reads-the-wrong-size", PAGE, "for n in SIZES)", "for n in SIZES[::-1])", TESTS),
)  # fmt: skip
