"""The status of a system follows from the verdicts on its central claim alone."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.command_line import call, refused, told
from support.refusals import refuses

from analysis.experiment import Experiment, Part
from analysis.judging import system_list as listed
from analysis.judging import verdicts
from analysis.judging.claims import CLAIMS
from analysis.judging.system_list import System, find, status, systems
from analysis.judging.verdicts import by_claim
from analysis.pages.forest import forest
from analysis.pages.systems_page import facts, findings, index, pages, summary
from testbed.errors import UserError

INDEX = (Path(__file__).parents[2] / "docs" / "verdicts.md").read_text()


def test_there_are_122_systems_numbered_in_order_with_claims_that_exist():
    assert [each.n for each in systems().values()] == list(range(1, 123))
    assert {claim for each in systems().values() for claim in each.central} <= set(CLAIMS)


@pytest.mark.parametrize(
    ("words", "expected"),
    [((), "side matter only"), (("supported", "refuted"), "decided"), (("no difference",), "decided"),
     (("supported", "smaller than claimed"), "smaller than claimed"),
     (("smaller than claimed", "direction only"), "half decided"),
     (("margin missed", "undecided"), "undecided"), (("smaller than claimed", "not run"), "undecided"),
     (("supported", "invalid: headroom"), "invalid")],
)  # fmt: skip
def test_a_status_is_that_of_the_weakest_verdict_on_the_central_claims(words, expected):
    judged = {f"c{i}": {"verdict": word} for i, word in enumerate(words)}
    assert status(System(1, "x", "A", "", "", tuple(judged)), judged) == expected


def test_a_central_claim_without_a_verdict_is_one_message():
    with pytest.raises(UserError, match="System 'x' names the central claim 'gone', which has no verdict"):
        status(System(1, "x", "A", "", "", ("gone",)), {})


def test_an_experiment_judges_a_system_by_its_own_claims_alone():
    made = Experiment("e", question="Is it?", source="s", systems={"OAPL": Part("a part", ("gains-*", "c"))})
    for name in ("gains-a", "gains-b"):
        made.claim(name, "It is so.", kind="identity")(lambda: None)
    refuses("Experiment 'e' judges 'OAPL' by c; it makes gains-a, gains-b", made.judges)
    made.claim("c", "It is so.", kind="identity")(lambda: None)
    assert made.judges()["OAPL"] == Part("a part", ("gains-a", "gains-b", "c"))


def test_every_training_recipe_says_what_a_fair_test_needs_and_what_ours_has(tmp_path, monkeypatch):
    for name, text in listed.asked().items():
        left = [word in text for word in (" Done: ", " Wrong: ", " Wrong for ", " Wrong in ", " Open: ")]
        assert any(left), f"{name}: say what was not delivered, and why"
    assert {name for name, each in systems().items() if each.kind[0] == "A"} <= {*listed.asked()}
    for line, word in (("No System,x,delivered,y", "No System"), ("OAPL,x,done,y", "done")):
        monkeypatch.setattr(listed, "ASKED", tmp_path / "asked.csv")
        listed.ASKED.write_text(f"system,asked,answer,why\n{line}\n")
        refuses(word, listed.asked.__wrapped__)


def test_the_committed_index_is_that_of_the_verdicts_and_small():
    assert index(by_claim()) == INDEX, "write it again: testbed evidence pages systems"
    assert len(INDEX.encode()) < 60_000
    assert summary(by_claim()) in (Path(__file__).parents[2] / "README.md").read_text().splitlines()


def test_no_identity_stands_alone_as_what_was_found_of_a_system():
    judged = by_claim()
    for each in systems().values():
        assert not each.central or any(judged[x]["kind"] != "identity" for x in each.central), each.name


def test_every_system_has_a_page_with_its_claims():
    assert "A fair test of the central claim would need " in pages(by_claim())["systems/1.md"]
    made = pages(by_claim())
    assert len(made) == 123
    assert "`m2po-keeps-fresh-accuracy-at-lag-256-on-long` |" in made["systems/18.md"]
    assert any("**Undecided**" in page for name, page in made.items() if name != "systems/index.md")
    assert "[BAPO](17.md)" in made["systems/index.md"]


def test_an_experiment_that_names_no_listed_system_is_an_error():
    made = Experiment("x", question="Is it?", source="me", systems={"IQ": Part("half")})
    made.claim("x-holds", statement="a.")(lambda: None)
    refuses("Unknown system in experiment x: 'IQ'. Did you mean 'IQL'", facts, by_claim(), {"x": made})


@pytest.mark.parametrize("word", ["18", "m2po", "M2PO (Prosperity before Collapse)"])
def test_a_system_is_found_by_number_name_and_name_without_parentheses(word):
    assert find(word).n == 18


def test_names_without_parentheses_tell_the_systems_apart():
    assert len({name.split(" (")[0].lower() for name in systems()}) == 122


@pytest.mark.parametrize(
    ("name", "short", "work"),
    [("Correlated proxies (ORPO)", ("correlated proxies", "orpo"), "ORPO (2025), sec. 2"),
     ("A / B → C (rare switching)", ("a / b → c", "a", "b", "c"), "C (2024), arXiv:2401.12345")],
)  # fmt: skip
def test_a_source_is_the_cited_work_that_names_the_system_or_else_all(name, short, work, monkeypatch):
    assert listed.short_names(name) == short
    monkeypatch.setattr(listed, "trials", lambda: {name: {"e": Part("", ("claim",))}})
    every = "ours; ORPO (2025), sec. 2; C (2024), arXiv 2401.12345v2, of which half"
    for said, expected in ((every, work), ("Me (2026); ours; It (2025)", "Me (2026); It (2025)")):
        monkeypatch.setattr(listed, "CLAIMS", {"claim": SimpleNamespace(source=said)})
        assert listed.source(name) == expected


def test_a_row_names_the_systems_that_its_claim_speaks_of(monkeypatch):
    experiment = SimpleNamespace(judges=lambda: {"X": Part("", ("one",)), "Y": Part("", ("one", "two"))})
    monkeypatch.setattr(verdicts, "EXPERIMENTS", {"e": experiment})
    entry = SimpleNamespace(promises={"experiment": "e"})
    monkeypatch.setattr(verdicts, "CLAIMS", dict.fromkeys(("one", "two"), entry))
    assert [verdicts._systems(claim) for claim in ("one", "two")] == [["X", "Y"], ["Y"]]


def test_systems_are_listed_counted_and_shown(capsys):
    _, out, _ = call(capsys, "list", "systems", "--json")
    rows = json.loads(out)
    assert [each["name"] for each in rows] == list(systems())
    _, out, _ = call(capsys, "list", "systems", "--by", "status", "--json")
    count = json.loads(out)
    assert sum(count.values()) == 122
    assert set(count) <= set(listed.STATUSES)
    out = told(capsys, "show", "ctpo", "--kind", "system")
    assert re.search(r"(?m)^  central +Tuned alike, ctpo .* \(> 0.*\): ", out)
    assert "Unknown system 'm2p'. Did you mean 'm2po'?" in refused(capsys, "show", "m2p", "--kind", "system")


def test_findings_are_counted_by_kind_and_identities_are_left_out(capsys):
    rows = [("identity", "supported"), ("enumerated", "refuted"), ("toy training", "invalid: acts")]
    rows.append(("toy training", "invalid: rival"))
    judged = {str(n): {"kind": kind, "verdict": verdict} for n, (kind, verdict) in enumerate(rows)}
    found = {
        "enumerated": {"refuted": 1}, "small world": {}, "toy training": {"invalid": 2}, "real model": {},
    }  # fmt: skip
    assert findings(judged) == found
    assert "Claims by kind of evidence: enumerated: " in INDEX


def test_the_drawing_of_an_area_has_its_central_claims_in_margins():
    judged = dict(by_claim())
    (claim,) = find("arb").central
    row = {"effect": 0.04, "low": 0.03, "high": 0.05, "asks": "> 0.02", "verdict": "supported"}
    judged[claim] = {**judged[claim], **row}
    text = forest(("on-policy-replay",), judged)
    assert "ARB: supported" in text
    assert 'cx="555.0"' in text  # 330 pixels of names, then 45 a margin from -3 on
    assert 'x1="532.5" x2="577.5"' in text
    assert 'x1="510.0" x2="510.0"' in text  # what is asked: a margin
    judged[claim] |= {"effect": 0.2, "high": 0.3, "asks": "> -0.02"}
    text = forest(("on-policy-replay",), judged)
    assert "<path" in text  # an arrow
    assert 'x1="420.0" x2="420.0"' in text  # what is asked lies below 0
    assert forest(("lag-schedules",), judged) == ""
    judged[claim] |= {"effect": None, "low": None, "high": None, "asks": "", "verdict": "not run"}
    assert "ARB" not in forest(("on-policy-replay",), judged)
