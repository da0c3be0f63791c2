"""Bugs planted in what the laboratory's comparisons read: areas under the curve, chosen rates, rows of dots."""

from mutants.mutant import Mutant

AREA, RATES = "analysis/judging/auroc.py", "analysis/sweeps/tuned_cells.py"
TEST_AREA, TEST_RATES = "tests/unit/analysis/test_auroc.py", "tests/unit/analysis/test_lab_rates.py"
FIGURES = "tests/experiments/test_lab_figures.py"
ARM, TEST_ARM = "analysis/judging/arm_claims.py", "tests/experiments/test_arm_claims.py"

MUTANTS = (
    Mutant("arm-claims-arguments-as-written", ARM, "tuple(sorted(args))", "args", TEST_ARM),
    Mutant(
        "arms-without-their-arguments",
        "analysis/tables/cell_table.py",
        'if key != "seed"} for run in runs',
        'if key != "seed" and not key.endswith("_args")} for run in runs',
        "tests/experiments/test_families.py -k share",
    ),
    Mutant("arm-claims-never-is-nothing", ARM, ".fillna(np.inf) for each", " for each", TEST_ARM),
    Mutant(
        "arm-claims-any-saving", ARM, "both[name] * times < both[rival]", "both[name] < both[rival]", TEST_ARM
    ),
    Mutant(
        "arm-claims-margin-forgotten",
        ARM,
        "found[name] - found[rival], margin, note",
        "found[name] - found[rival], 0.0, note",
        TEST_ARM,
    ),
    Mutant(
        "arm-claims-the-lost-are-spared",
        ARM,
        "happens_mostly(~lost_N, note)",
        "happens_mostly(lost_N, note)",
        TEST_ARM,
    ),
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
    Mutant(
        "lab-rates-without-arguments",
        RATES,
        "arms.get(words(cell.recipe_args), best[:0])",
        "[*arms.values()][-1]",
        TEST_RATES,
    ),
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
