"""Every verdict of the claims about REC."""

import math

import numpy as np
import pandas as pd
import pytest
from support.deciding import word

from analysis.experiments.lag import rec

LAGS, SEEDS = rec.LAGS, 16
OFFLINE = LAGS[-1]
CLAIMS = rec.REC.claims
NOISE = np.linspace(-0.02, 0.02, SEEDS)


def rec_table(change=0.0, clipped_falls=0, open_falls=SEEDS):
    """Final accuracies of REC; `change` is what importance weights add at lag 16; falls count seeds."""
    rows = []
    for lag in LAGS:
        for seed in range(SEEDS):
            for recipe, falls in (("rec", clipped_falls), ("rec_oneside", open_falls)):
                for weight in ("none", "importance"):
                    weighted = weight == "importance" and recipe == "rec"
                    moved = NOISE[seed] + (change if lag == 16 else 0.0) if weighted and lag else 0.0
                    rows.append(
                        {
                            "recipe": recipe,
                            rec.WEIGHT: weight,
                            "lag": lag,
                            "seed": seed,
                            "accuracy": 0.3 + seed / 40 + moved,  # pairs tell more than means
                            "collapsed": float(lag == OFFLINE and seed < falls),
                        }
                    )
    rows.append(
        {"recipe": "reinforce", rec.WEIGHT: math.nan, "lag": OFFLINE, "seed": 0, "accuracy": 0.0,
         "collapsed": 1.0}
    )  # fmt: skip
    return pd.DataFrame(rows).sample(frac=1, random_state=0)


@pytest.mark.parametrize(
    ("change", "expected"),
    [(0.0, "supported"), (0.05, "undecided"), (-0.05, "undecided"), (-0.2, "refuted"), (0.2, "refuted")],
)
def test_the_claims_of_equal_accuracy_reach_every_verdict(change, expected):
    table = rec_table(change)
    assert word(CLAIMS["rec-importance-weights-change-nothing"].function(table)) == expected


@pytest.mark.parametrize(
    ("clipped", "opened", "expected"),
    [(0, SEEDS, "supported"), (SEEDS, 0, "refuted"), (8, 8, "undecided"), (0, 5, "undecided")],
)
def test_the_claim_about_the_clip_reaches_every_verdict(clipped, opened, expected):
    evidence = CLAIMS["rec-clip-prevents-collapse"].function(
        rec_table(clipped_falls=clipped, open_falls=opened)
    )
    assert word(evidence) == expected
    assert evidence.n == SEEDS
