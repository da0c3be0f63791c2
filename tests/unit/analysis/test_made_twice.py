"""Tables made twice: runs share no key, arms share theirs, and a claim needs both runs."""

import numpy as np
import pandas as pd

from analysis.judging.replication import RUNS, combinations, of_keys


def _make(key_R):
    frame, key_N = combinations(key_R, arm=["a", "b"], setting=[1, 2])
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
