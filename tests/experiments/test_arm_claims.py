"""Claims about arms of a table of cells: names as rows spell them, gains, savings, and who is spared."""

import numpy as np
import pandas as pd
from support.deciding import agrees

from analysis.judging.arm_claims import above, named, sooner, steady

ARMS = named({"fast": ("sfpo", (("fast", 3), ("alpha", 1))), "slow": ("grpo", ())}, lag=0)


def table(**columns):
    rows = [
        pd.DataFrame({**where, "seed": range(16), **{k: v[i] for k, v in columns.items()}})
        for i, where in enumerate(ARMS.values())
    ]
    return pd.concat(rows, ignore_index=True)


def test_an_arm_is_spelled_as_rows_of_a_table_spell_it():
    assert ARMS["fast"] == {"recipe": "sfpo", "recipe_args": "alpha=1,fast=3", "lag": 0}
    assert ARMS["slow"]["recipe_args"] == "default"


def test_the_first_arm_must_gain_more_than_the_margin():
    found = table(accuracy=(0.9, 0.6))
    assert agrees(above(found, pair=ARMS, margin=0.2))
    assert not agrees(above(found, pair=ARMS, margin=0.4))


def test_a_run_that_never_gets_there_is_beaten_by_one_that_does_and_saves_nothing_on_its_like():
    never = np.full(16, np.nan)
    assert sooner(table(**{"rollouts_to 0.8": (64.0, never)}), pair=ARMS, times=3).effect == 1.0
    assert sooner(table(**{"rollouts_to 0.8": (never, never)}), pair=ARMS).effect == 0.0


def test_half_the_rollouts_are_not_a_third_of_them():
    half = table(**{"rollouts_to 0.8": (49.0, 100.0)})
    assert sooner(half, pair=ARMS, times=2).effect == 1.0
    assert sooner(half, pair=ARMS, times=3).effect == 0.0


def test_steady_counts_the_seeds_that_are_spared():
    assert steady(table(collapsed=(0.0, 1.0)), where=ARMS["fast"]).effect == 1.0
    assert steady(table(collapsed=(0.0, 1.0)), where=ARMS["slow"]).effect == 0.0
