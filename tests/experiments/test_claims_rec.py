"""Every verdict of the claims about importance weights of REC."""

import itertools

import numpy as np
import pandas as pd
import pytest
from support.deciding import word

from analysis.experiments.lag import rec

LAGS, SEEDS = rec.LAGS, 16
CLAIMS = rec.REC.claims
NOISE = np.linspace(-0.02, 0.02, SEEDS)


def rec_table(change=0.0):
    """Final accuracies of REC; `change` is what importance weights add at lag 16."""
    rows = []
    for lag, seed, weight in itertools.product(LAGS, range(SEEDS), ("none", "importance")):
        moved = NOISE[seed] + change * (lag == 16) if weight == "importance" and lag else 0.0
        accuracy = 0.3 + seed / 40 + moved  # pairs tell more than means
        rows.append({"recipe": "rec", rec.WEIGHT: weight, "lag": lag, "seed": seed, "accuracy": accuracy})
    return pd.DataFrame(rows).sample(frac=1, random_state=0)


@pytest.mark.parametrize(
    ("change", "expected"),
    [(0.0, "supported"), (0.05, "undecided"), (-0.05, "undecided"), (-0.2, "refuted"), (0.2, "refuted")],
)
def test_the_claims_of_equal_accuracy_reach_every_verdict(change, expected):
    table = rec_table(change)
    assert word(CLAIMS["rec-importance-weights-change-nothing"].function(table)) == expected
