"""The estimator map: committed numbers are those of the estimators, and the page names every one of them."""

import re
from pathlib import Path

import numpy as np
import pytest

from analysis.experiments.estimators.estimator_map import NAME, SIZES, estimator_map, world
from analysis.tables.committed import load_committed
from testbed.estimators import estimator
from testbed.exact.bandit_moments import linear_weight

PAGE = Path(__file__).parents[2] / "docs" / "estimators.md"


@pytest.fixture(scope="module")
def frame():
    return load_committed([NAME])[NAME].frame


def test_the_committed_table_is_what_the_estimators_give_today(frame):
    again = estimator_map().frame
    assert list(again.columns) == list(frame.columns)
    # Five digits are kept; another machine may round the last one differently.
    for column in ("value", "bias", "deviation", "rmse"):
        np.testing.assert_allclose(again[column], frame[column], rtol=2e-5, atol=1e-12)


def test_the_error_of_clipped_ips_is_that_of_the_linear_family(frame):
    law = world().law
    rows = frame[(frame["estimator"] == "clipped_ips") & (frame["plain"] == 0)]
    for row in rows.itertuples():
        wanted = linear_weight(law, np.minimum(law.weight_SA, row.value)).mse(row.n)
        assert row.rmse == pytest.approx(wanted**0.5 / law.value, rel=1e-4)


def test_with_more_rounds_less_regularization_is_best(frame):
    # All three are plain IPS at their weak end; the best parameter moves there as n grows.
    for name, weaker in (("clipped_ips", 1), ("ix", -1), ("log_smoothing", -1)):
        rows = frame[(frame["estimator"] == name) & (frame["plain"] == 0)]
        best = [float(rows[rows["n"] == n].sort_values("rmse")["value"].iloc[0]) for n in SIZES]
        assert (np.diff(best) * weaker >= 0).all()
        assert best[0] != best[-1]


def test_the_page_names_every_estimator_and_its_example_runs():
    text = PAGE.read_text()
    assert set(re.findall(r"^\| `(\w+)` \| (?:–|`\w+=)", text, re.M)) == set(estimator)
    scope: dict[str, object] = {}
    exec(re.search(r"```python\n(.*?)```", text, re.S)[1], scope)
    assert scope["found"].value == pytest.approx(1 / 3)
