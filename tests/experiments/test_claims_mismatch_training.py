"""The committed cells of mismatch and lag where nothing learns."""

import pandas as pd

from analysis.experiments.engines.mismatch_staleness import SIGMA
from analysis.tables.committed import load_committed


def test_where_nothing_learns_the_committed_cells_of_every_lag_are_equal():
    table = load_committed(["mismatch-staleness"])["mismatch-staleness"].frame
    still = table[table["learning_rate"] == 0]
    values = [c for c in still.columns if c.startswith(("exact", "mean", "min", "first"))]
    by_lag = {lag: rows.set_index([SIGMA, "seed"])[values] for lag, rows in still.groupby("lag")}
    assert len(by_lag) == 2
    pd.testing.assert_frame_equal(*by_lag.values(), rtol=0)
    # The start is the uniform policy: without mismatch its ratio is 1.
    assert (by_lag[0].loc[0.0]["min exact/ess_kish_sequence"] == 1).all()
