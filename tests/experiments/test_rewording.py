"""A statement or question in other words keeps the date of its design only if it says the same."""

import re
from collections import Counter
from types import SimpleNamespace

import pytest

from analysis.experiment import EXPERIMENTS
from analysis.judging import preregistration
from analysis.judging.claims import CLAIMS
from analysis.judging.preregistration import digest, reworded
from analysis.judging.verdicts import by_claim
from analysis.tables.committed import load_committed

WORDS = "half|third|quarter|fifth|tenth|twice|two|three|four|five|six|eight|ten|most|least|less|more"


def numbers(statement):
    return Counter(re.findall(rf"\d[\d,.]*\d|\d|\b(?:{WORDS})\b", statement))


@pytest.mark.parametrize("claim", sorted(reworded().keys() & CLAIMS.keys()))
def test_a_reworded_statement_asks_the_same_of_the_same_table(claim):
    row, judged, entry = reworded()[claim], by_claim()[claim], CLAIMS[claim]
    table = load_committed([entry.promises["table"]])[entry.promises["table"]]
    assert table.made["preset"]["claims"][claim] == digest(row["before"]), "made anew: drop the row"
    assert entry.promises["statement"] != row["before"]
    assert not numbers(row["before"]) - numbers(entry.promises["statement"]), "a number is gone"
    assert (row["asks"], float(row["effect"])) == (judged["asks"], pytest.approx(judged["effect"], rel=1e-4))


@pytest.mark.parametrize("name", sorted(reworded().keys() - CLAIMS.keys()))
def test_a_reworded_question_stands_for_the_design_that_was_written(name):
    before, experiment = reworded()[name]["before"], EXPERIMENTS[name]
    made = load_committed([name])[name].made["preset"]
    assert made["design"] == preregistration.design(experiment, before)["design"], "made anew: drop the row"
    assert before != experiment.question
    assert not numbers(before) - numbers(experiment.question), "a number is gone"


@pytest.mark.parametrize(("before", "standing"), [("b.", "pre-set"), ("c.", "changed since")])
def test_the_statement_before_has_to_be_the_one_that_was_written(monkeypatch, before, standing):
    monkeypatch.setattr(preregistration, "design", lambda _: {"design": "d", "claims": {"c": digest("a.")}})
    monkeypatch.setattr(preregistration, "reworded", lambda: {"c": {"before": before}})
    written = {"design": "d", "claims": {"c": digest("b.")}}
    made = SimpleNamespace(compute=None, claims="c", name="e")
    assert preregistration.standing(made, "c", written) == standing
