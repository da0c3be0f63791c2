"""Tables made twice: runs share no key, arms share theirs, and a claim needs both runs."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.judging.comparisons import must_exceed
from analysis.judging.replication import RUNS, combinations, difference, level, of_keys


def _make(key_R):
    frame, key_N = combinations(key_R, arm=["a", "b"], dial=[1, 2])
    return frame.assign(key=key_N.astype(str))


def test_arms_of_a_seed_share_their_key_and_no_run_or_experiment_shares_one():
    table = of_keys("x", _make, 3)().frame
    assert len(table) == 2 * 2 * 2 * 3
    assert (table.groupby(["run", "seed"])["key"].nunique() == 1).all()
    assert table["key"].nunique() == 2 * 3
    assert not set(table["key"]) & set(of_keys("y", _make, 3)().frame["key"])


def _of(first, second):
    parts = [
        pd.DataFrame({"run": run, "seed": range(8), "arm": arm, "y": sign * np.linspace(lost, lost + 0.1, 8)})
        for run, lost in zip(RUNS, (first, second), strict=True)
        for arm, sign in (("a", 1.0), ("b", 0.0))
    ]
    return pd.concat(parts, ignore_index=True)


def test_a_claim_that_one_run_refutes_is_not_supported():
    both = must_exceed(difference(_of(1.0, 1.0), "y", {"arm": "a"}, {"arm": "b"}), 0.5, "")
    assert both.effect > 0
    assert both.p < 1e-6
    assert must_exceed(difference(_of(1.0, 0.2), "y", {"arm": "a"}, {"arm": "b"}), 0.5, "").effect < 0


def test_a_table_without_its_replication_decides_nothing():
    table = _of(1.0, 1.0)
    half = table[table["run"] == "first"]
    assert level(table, "y", {"arm": "a"})["first"].size == 8
    for groups in (difference(half, "y", {"arm": "a"}, {"arm": "b"}), level(half, "y", {"arm": "a"})):
        assert must_exceed(groups, 0.5, "").p == 1.0
