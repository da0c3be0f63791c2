"""Bugs planted in the table with a row per cell, in the sweeps behind it and in the claims about REC."""

from mutants.mutant import Mutant

TABLE, RUN, EXPERIMENT = (
    "analysis/tables/cell_table.py",
    "analysis/tables/making.py",
    "analysis/experiment.py",
)
# The committed tables are left out: a bug in the declaration of a sweep is not planted here.
TESTS = "tests/unit/analysis/test_cell_table.py -k 'not committed'"
EQUAL, REC, BOUNDED, CLAIMS = (
    "analysis/judging/comparisons.py",
    "analysis/experiments/lag/rec.py",
    "analysis/experiments/lag/rec_bounded.py",
    "tests/experiments/test_claims_rec.py",
)
EVIDENCE = "tests/unit/analysis/test_evidence.py"

MUTANTS = (
    Mutant("celltable-final-is-the-last-row", TABLE, "x_L[-WINDOW:].mean()", "x_L[-1]", TESTS),
    Mutant("celltable-final-is-the-first-window", TABLE, "x_L[-WINDOW:].mean()", "x_L[:WINDOW].mean()", TESTS),
    Mutant("celltable-rows-unsorted", TABLE, '.sort_values(["cell", "step"], ignore_index=True)', "", TESTS),
    Mutant("celltable-cells-unsorted", TABLE, "found = found.sort_values(list(keys))", "pass", TESTS),
    Mutant("celltable-a-cell-read-twice-counts-twice", TABLE, 'frame.drop_duplicates(["cell", "step"])', "frame", TESTS),
    Mutant("celltable-every-gap-is-zero", TABLE, "if logged == ACCURACY else values_L", "", TESTS),
    Mutant("celltable-a-lost-run-has-no-accuracy", TABLE, "np.nan_to_num(values_L, nan=0.0) if logged == ACCURACY else values_L", "values_L", TESTS),
    Mutant("celltable-diverged-at-the-end-only", TABLE, "(groups[cell][DIVERGED] != 0).any()", "groups[cell][DIVERGED].iloc[-1] != 0", TESTS),
    Mutant("celltable-arguments-stay-text", TABLE, "return pd.to_numeric(values)", "return values", TESTS),
    Mutant("celltable-no-arguments-are-a-gap", TABLE, 'replace("", DEFAULT)', 'replace("", "")', TESTS),
    Mutant("celltable-clashes-pass", TABLE, "if not clash.any():", "if True:", TESTS),
    Mutant("celltable-clashes-before-rounding", TABLE, "read = table.frame[list(keys)]", "read = cells[list(keys)]", TESTS),
    Mutant("celltable-torn-arguments-pass", TABLE, "if not all(sign for _, sign, _ in pairs):", "if False:", TESTS),
    Mutant("celltable-a-misspelt-argument-passes", TABLE, "if values.isna().all():", "if False:", TESTS),
    Mutant("celltable-what-varied-is-not-told", TABLE, "if field not in fields]}", "if field in fields]}", TESTS),
    Mutant("celltable-a-metric-that-is-not-there", TABLE, "found += READS.get(word, (ACCURACY,))", "found += ['step']", TESTS),
    Mutant("celltable-survivors-make-a-table", RUN, "if status.done < status.planned:", "if status.done > status.planned:", TESTS),
    Mutant("celltable-rec-unpaired", REC, "(importance - none)", "(importance - none.to_numpy())", CLAIMS),
    Mutant("celltable-rec-of-the-other-region", BOUNDED, 'table["recipe_args.keep"] == keep', 'table["recipe_args.keep"] != keep', CLAIMS),
    Mutant("celltable-rec-clip-at-the-smallest-lag", REC, 'table["lag"].max()', 'table["lag"].min()', CLAIMS),
    Mutant("evidence-floor-of-the-means", EQUAL, "student_interval(x_N).low > floor + margin", "x_N.mean() > floor", EVIDENCE),
    Mutant("evidence-floor-of-every-arm", EQUAL, "return not any(x_N.size > 1 and", "return not all(x_N.size > 1 and", EVIDENCE),
    Mutant("asynchrony-mean-of-minima", "analysis/experiments/pipelines/pipeline_learning.py", 'found = must_exceed(gains, 0.0, "mean log speed-up")', 'found = must_exceed({"y": np.min(list(gains.values()), axis=0)}, 0.0, "x")', "tests/experiments/test_asynchrony.py"),
)  # fmt: skip
