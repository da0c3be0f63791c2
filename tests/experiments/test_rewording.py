"""A statement in other words keeps the date of its design only if it claims the same."""

import re
from collections import Counter
from types import SimpleNamespace

import pytest

from analysis.judging import preregistration
from analysis.judging.claims import CLAIMS
from analysis.judging.preregistration import digest, reworded
from analysis.judging.verdicts import by_claim
from analysis.tables.committed import load_committed

WORDS = "half|third|quarter|fifth|tenth|twice|two|three|four|five|six|eight|ten|most|least|less|more"


def numbers(statement):
    return Counter(re.findall(rf"\d[\d,.]*\d|\d|\b(?:{WORDS})\b", statement))


@pytest.mark.parametrize("claim", sorted(reworded()))
def test_a_reworded_statement_asks_the_same_of_the_same_table(claim):
    row, judged, entry = reworded()[claim], by_claim()[claim], CLAIMS[claim]
    table = load_committed([entry.promises["table"]])[entry.promises["table"]]
    assert table.made["preset"]["claims"][claim] == digest(row["before"]), "made anew: drop the row"
    assert entry.promises["statement"] != row["before"]
    assert not numbers(row["before"]) - numbers(entry.promises["statement"]), "a number is gone"
    assert (row["asks"], float(row["effect"])) == (judged["asks"], pytest.approx(judged["effect"], rel=1e-4))


@pytest.mark.parametrize(("before", "standing"), [("b.", "pre-set"), ("c.", "changed since")])
def test_the_statement_before_has_to_be_the_one_that_was_written(monkeypatch, before, standing):
    monkeypatch.setattr(preregistration, "design", lambda _: {"design": "d", "claims": {"c": digest("a.")}})
    monkeypatch.setattr(preregistration, "reworded", lambda: {"c": {"before": before}})
    written = {"design": "d", "claims": {"c": digest("b.")}}
    assert preregistration.standing(SimpleNamespace(compute=None, claims="c"), "c", written) == standing
