"""What claims say of a table: arms are paired by seed, groups are judged by their worst."""

import numpy as np
import pandas as pd
import pytest

from analysis.judging.comparisons import (
    arm,
    arms,
    must_happen_more_often,
    paired,
    paired_by,
    shown,
)
from testbed.errors import UserError

NOISE = np.array([-0.02, 0.01, 0.0, 0.03])


def table(lost=0.1, seeds=4):
    """Recipe b ends lower than a by `lost` at lag 4, by twice that at lag 8; seeds differ by 10."""
    rows = [
        {"recipe": recipe, "lag": lag, "seed": seed, "value": 10.0 * seed - (recipe == "b") * lost * lag / 4}
        for recipe in "ab"
        for lag in (0, 4, 8)
        for seed in range(seeds)
    ]
    return pd.DataFrame(rows).sample(frac=1, random_state=0)


def test_pairs_are_of_one_seed_whatever_the_order_of_rows():
    lost_N = paired(table(), "value", {"recipe": "a", "lag": 4}, {"recipe": "b", "lag": 4})
    assert lost_N == pytest.approx([0.1] * 4)
    assert list(arm(table(), "value", {"recipe": "a", "lag": 0}).index) == [0, 1, 2, 3]


def test_a_seed_that_one_arm_lacks_is_no_pair():
    frame = table()
    frame = frame[~((frame["recipe"] == "b") & (frame["seed"] == 2))]
    assert paired(frame, "value", {"recipe": "a", "lag": 4}, {"recipe": "b", "lag": 4}).size == 3
    assert len(arms(frame, "value", {name: {"recipe": name, "lag": 0} for name in "ab"})) == 3


def test_an_arm_without_rows_has_no_pairs_and_one_that_is_two_is_refused():
    assert paired(table(), "value", {"recipe": "c", "lag": 4}, {"recipe": "b", "lag": 4}).size == 0
    with pytest.raises(UserError, match=r"Two rows with \{'recipe': 'a'\} share seed 0; say what"):
        arm(table(), "value", {"recipe": "a"})
    with pytest.raises(UserError, match="Unknown column of the table 'lags'. Did you mean 'lag'"):
        arm(table(), "value", {"lags": 4})


def test_groups_are_compared_at_their_own_level_or_with_one_of_them():
    same = paired_by(table(), "value", {"recipe": "a"}, {"recipe": "b"}, "lag")
    assert {lag: x_N.mean() for lag, x_N in same.items()} == pytest.approx({0: 0.0, 4: 0.1, 8: 0.2})
    fresh = paired_by(table(), "value", {"recipe": "b"}, {"recipe": "b"}, "lag", other=0)
    assert {lag: x_N.mean() for lag, x_N in fresh.items()} == pytest.approx({4: -0.1, 8: -0.2})
    assert shown(fresh, 2) == "-0.10 at 4, -0.20 at 8"


def test_events_are_counted_where_both_arms_have_a_seed():
    first = pd.Series([1.0, 1.0, 0.0, 1.0], index=[3, 1, 2, 9])
    second = pd.Series([0.0, 1.0, 0.0], index=[3, 1, 2])
    found = must_happen_more_often(first, second, "x")
    assert (found.effect, found.n) == (1.0, 3)
