"""Every verdict of the claims about REC."""

import math

import numpy as np
import pandas as pd
import pytest
from support.deciding import word

from analysis.experiments.lag import rec, rec_bounded

LAGS, SEEDS = (0, 16, 260), 16
NOISE = np.linspace(-0.02, 0.02, SEEDS)


def decide(evidence):
    return word(evidence)


# The claims


def rec_table(change=0.0, clipped_falls=0, open_falls=SEEDS):
    """Final accuracies of REC; `change` is what importance weights add at lag 16; falls count seeds."""
    rows = []
    for lag in LAGS:
        for seed in range(SEEDS):
            for recipe, falls in (("rec", clipped_falls), ("rec_oneside", open_falls)):
                for weight in rec.WEIGHTS:
                    weighted = weight == "importance" and recipe == "rec"
                    moved = NOISE[seed] + (change if lag == 16 else 0.0) if weighted and lag else 0.0
                    rows.append(
                        {
                            "recipe": recipe,
                            rec.WEIGHT: weight,
                            "lag": lag,
                            "seed": seed,
                            "accuracy": 0.3 + seed / 40 + moved,  # pairs tell more than means
                            "collapsed": float(lag == 260 and seed < falls),
                        }
                    )
    rows.append(
        {
            "recipe": "reinforce",
            rec.WEIGHT: math.nan,
            "lag": 260,
            "seed": 0,
            "accuracy": 0.0,
            "collapsed": 1.0,
        }
    )
    return pd.DataFrame(rows).sample(frac=1, random_state=0)


@pytest.mark.parametrize(
    ("change", "expected"),
    [(0.0, "supported"), (0.05, "undecided"), (-0.05, "undecided"), (-0.2, "refuted"), (0.2, "refuted")],
)
def test_the_claims_of_equal_accuracy_reach_every_verdict(change, expected):
    table = rec_table(change)
    assert decide(rec.rec_importance_weights_change_nothing(table)) == expected
    two = table[table["recipe"] == "rec"].assign(**{"recipe_args.keep": "twoside"})
    other = two.assign(**{"recipe_args.keep": "oneside", "accuracy": NOISE[0] + two["accuracy"] ** 2})
    both = pd.concat([two, other])
    assert decide(rec_bounded.rec_bounded_importance_weights_change_nothing(both)) == expected
    swapped = both.assign(
        **{"recipe_args.keep": both["recipe_args.keep"].map({"twoside": "oneside", "oneside": "x"})}
    )
    assert decide(rec_bounded.rec_slow_importance_weights_change_nothing(swapped)) == expected


def test_the_note_gives_the_change_at_every_lag():
    note = rec.rec_importance_weights_change_nothing(rec_table(-0.2)).note.replace("-0.000", "+0.000")
    changes = "0.49+0.000 at lag 0, 0.49-0.200 at lag 16, 0.49+0.000 at lag 260"
    assert f"medians {changes}; 2 of 3 cells agree, least lag 16" in note


@pytest.mark.parametrize(
    ("clipped", "opened", "expected"),
    [(0, SEEDS, "supported"), (SEEDS, 0, "refuted"), (8, 8, "undecided"), (0, 5, "undecided")],
)
def test_the_claim_about_the_clip_reaches_every_verdict(clipped, opened, expected):
    evidence = rec.rec_clip_prevents_collapse(rec_table(clipped_falls=clipped, open_falls=opened))
    assert decide(evidence) == expected
    assert evidence.n == SEEDS
    assert f"without the clip on {opened}, with it on {clipped} of 16 seeds" in evidence.note
