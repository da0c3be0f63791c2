"""Every verdict of the statistical claims about mismatch in training, and what their numbers mean."""

import itertools

import numpy as np
import pandas as pd
import pytest
from support.deciding import word

from analysis.experiments.engines import fp8_training, mismatch_staleness
from analysis.tables.committed import load_committed

SEEDS = 12
NOISE = np.linspace(-0.01, 0.01, SEEDS)
SIGMA = mismatch_staleness.SIGMA
FP8 = fp8_training.EXPERIMENT.claims


def fp8_table(noise_falls=SEEDS, unified_change=0.0):
    rows = []
    for (name, key), seed in itertools.product(fp8_training.ARMS.items(), range(SEEDS)):
        falls = name == "noise" and seed < noise_falls
        accuracy = 0.9 + unified_change * (name == "unified") + NOISE[seed] * (1 + len(name))
        rows.append({**key, "seed": seed, "accuracy": accuracy, "collapsed": float(falls)})
    return pd.DataFrame(rows).sample(frac=1, random_state=0)


@pytest.mark.parametrize(("falls", "expected"), [(SEEDS, "supported"), (0, "undecided")])
def test_collapse_is_counted_against_full_precision(falls, expected):
    assert (
        word(FP8["strong-rollout-noise-collapses-the-trainer"].function(fp8_table(noise_falls=falls)))
        == expected
    )


@pytest.mark.parametrize(
    ("change", "expected"), [(0.0, "supported"), (-0.05, "undecided"), (-0.2, "refuted")]
)
def test_one_precision_is_compared_with_full_precision(change, expected):
    assert (
        word(fp8_training.one_precision_on_both_sides_costs_nothing(fp8_table(unified_change=change)))
        == expected
    )


def test_where_nothing_learns_the_committed_cells_of_every_lag_are_equal():
    table = load_committed(["mismatch-staleness"])["mismatch-staleness"].frame
    still = table[table["learning_rate"] == 0]
    values = [c for c in still.columns if c.startswith(("exact", "mean", "min", "first"))]
    by_lag = {lag: rows.set_index([SIGMA, "seed"])[values] for lag, rows in still.groupby("lag")}
    assert len(by_lag) == 2
    pd.testing.assert_frame_equal(*by_lag.values(), rtol=0)
    # The start is the uniform policy: without mismatch its ratio is 1.
    assert (by_lag[0].loc[0.0]["min exact/ess_kish_sequence"] == 1).all()
