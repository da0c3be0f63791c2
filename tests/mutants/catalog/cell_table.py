"""Bugs planted in the table with a row per cell, in the sweeps behind it and in the claims about REC."""

from __future__ import annotations

from mutants.mutant import Mutant

TABLE, RUN, EXPERIMENT = "analysis/cell_table.py", "analysis/tables.py", "analysis/experiment.py"
# The committed tables are left out: a bug in the declaration of a sweep is not planted here.
TESTS = "tests/unit/analysis/test_cell_table.py -k 'not committed'"
EQUAL, REC, BOUNDED, CLAIMS = (
    "analysis/comparisons.py",
    "analysis/experiments/rec.py",
    "analysis/experiments/rec_bounded.py",
    "tests/experiments/test_claims_rec.py",
)

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
    Mutant("celltable-a-metric-that-is-not-there", TABLE, "return [ACCURACY if metric in OUTCOMES else", "return ['step' if metric in OUTCOMES else", TESTS),
    Mutant("celltable-survivors-make-a-table", RUN, "if status.done < status.planned:", "if status.done > status.planned:", TESTS),
    Mutant("celltable-equal-by-one-side-alone", EQUAL, "margin - abs(mean)", "margin - mean", CLAIMS),
    Mutant("celltable-equal-at-half-the-level", EQUAL, "p = 2 * float(", "p = float(", CLAIMS),
    Mutant("celltable-equal-if-one-group-is", EQUAL, "p = max(room[3]", "p = min(room[3]", CLAIMS),
    Mutant("celltable-unequal-without-correction", EQUAL, "len(rooms) * p", "p", CLAIMS),
    Mutant("celltable-equal-for-lack-of-spread", EQUAL, "if spread <= 1e-12 * abs(mean):", "if False:", CLAIMS),
    Mutant("celltable-zeros-are-evidence", EQUAL, "x_N.size == 0 or np.any(x_N != 0)", "True", CLAIMS),
    Mutant("celltable-interval-that-misses-zero", EQUAL, "0.0 if found.low <= 0 <= found.high else", "", CLAIMS),
    Mutant("celltable-rec-unpaired", REC, "(importance - none)", "(importance - none.to_numpy())", CLAIMS),
    Mutant("celltable-rec-of-the-other-region", BOUNDED, 'table["recipe_args.keep"] == keep', 'table["recipe_args.keep"] != keep', CLAIMS),
    Mutant("celltable-rec-clip-at-the-smallest-lag", REC, 'table["lag"].max()', 'table["lag"].min()', CLAIMS),
)  # fmt: skip
