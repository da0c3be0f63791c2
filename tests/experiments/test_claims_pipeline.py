"""Statistical claims about pipelines: replications made today are those of the table, and can refute."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from support.deciding import agrees, word

from analysis.experiments.pipelines import pipeline_replications as replicated
from analysis.judging import claims as base
from analysis.tables.committed import load_committed


@pytest.fixture(scope="module")
def table():
    return load_committed(["pipeline-replications"])["pipeline-replications"].frame


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(replicated.PIPELINES))
def test_replications_made_today_are_the_committed_ones_and_support_the_claim(name, table):
    fresh = replicated.replications(name, replicas=3)
    rows = table[(table["claim"] == name) & (table["replica"] < 3)].reset_index(drop=True)
    assert list(fresh["pipeline"]) == list(rows["pipeline"])
    assert_allclose(fresh[list(replicated.VALUES)], rows[list(replicated.VALUES)], rtol=1e-4, atol=1e-9)
    assert agrees(base.CLAIMS[name].function(fresh))


@pytest.mark.parametrize("name", sorted(replicated.PIPELINES))
def test_a_claim_about_pipelines_counts_replications_and_is_refuted_by_others(name, table):
    found = base.CLAIMS[name].function(table)
    assert word(found) == "supported"
    assert found.n == table[table["claim"] == name]["replica"].nunique()
    wrong = table.assign(
        period=table["period"] * np.where(table["pipeline"] == "split", 4.0, 0.9),
        length_bias=table["length_bias"] / 2,
        **{lag: table[lag] * 1.1 for lag in ("lag_sample", "lag_token")},
    )
    assert word(base.CLAIMS[name].function(wrong)) == "refuted"


@pytest.mark.slow
def test_a_queue_that_drops_its_newest_groups_refutes_what_is_said_of_dropping_the_oldest(monkeypatch):
    name, queues = "discard-stale-shortens-responses", replicated.discards()
    swapped = queues | {"full queue": replace(queues["full queue"], queue_rule="drop-newest")}
    monkeypatch.setitem(replicated.PIPELINES, name, (lambda: swapped, 200))
    assert word(base.CLAIMS[name].function(replicated.replications(name))) == "refuted"


def test_a_margin_holds_on_both_sides():
    noise_R = np.linspace(-1e-3, 1e-3, 8)
    for distance, expected in (
        (0.02, "supported"), (-0.02, "supported"), (0.04, "refuted"), (-0.04, "refuted"),
    ):  # fmt: skip
        rooms = replicated.within({"x": distance + noise_R})
        check = base.CLAIMS["discard-stale-shortens-responses"].function
        assert word(replace(check, outcome=lambda _, rooms=rooms: rooms)(pd.DataFrame())) == expected
