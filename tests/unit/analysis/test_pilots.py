"""Settings of arms chosen on pilot worlds."""

import pandas as pd
import pytest

from analysis.worlds.pilots import inside, tuned


@pytest.mark.parametrize(
    ("peak", "slope", "chosen", "ends"),
    [(2.0, 1.0, 2.0, False), (9.0, 1.0, 4.0, True), (-9.0, 1.0, 1.0, True), (9.0, 1e-3, 4.0, False)],
)
def test_the_best_setting_is_chosen_and_an_end_that_matters_is_seen(peak, slope, chosen, ends):
    grid = {"a": (1.0, 2.0, 3.0, 4.0), "b": (0.0, 1.0)}
    assert tuned(lambda a, b: -slope * abs(a - peak) - b, grid) == ({"a": chosen, "b": 0.0}, ends)


def test_the_gate_names_arms_at_an_end():
    table = pd.DataFrame({"arm": ["x", "y", "y"], "at end": [0, 1, 0]})
    assert inside()(table) == inside(arm=("x", "y"))(table) == "at an end of its grid: y"
    assert inside(arm="x")(table) == ""
