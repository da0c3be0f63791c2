"""Bugs planted in what the laboratory's comparisons read: areas under the curve, chosen rates, rows of dots."""

from __future__ import annotations

from mutants.mutant import Mutant

AREA, RATES = "analysis/auroc.py", "analysis/lab_rates.py"
TEST_AREA, TEST_RATES = "tests/unit/analysis/test_auroc.py", "tests/unit/analysis/test_lab_rates.py"
FIGURES = "tests/experiments/test_lab_figures.py"

MUTANTS = (
    Mutant(
        "auroc-ties-in-order-of-rows", AREA, "rankdata(score)", "rankdata(score, method='ordinal')", TEST_AREA
    ),
    Mutant(
        "auroc-resamples-rows",
        AREA,
        "frame.groupby(cluster)",
        "frame.groupby(np.arange(len(frame)))",
        TEST_AREA,
    ),
    Mutant("lab-rates-without-arguments", RATES, "best[best[ARGS] == words]", "best.tail(1)", TEST_RATES),
    Mutant(
        "strips-leave-the-late-out",
        "paper_figs/strips.py",
        "np.where(np.isfinite(x_N), x_N, best)",
        "x_N[np.isfinite(x_N)]",
        FIGURES,
    ),
    Mutant(
        "old-data-in-any-order",
        "paper_figs/very_old_data.py",
        "key=lambda key: (key[1], -found[key].median())",
        "key=str",
        FIGURES,
    ),
)
