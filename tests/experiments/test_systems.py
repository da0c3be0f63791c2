"""A system of the literature counts as judged only by an experiment that names it and has a verdict."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from analysis.experiment import EXPERIMENTS, Experiment, Part
from analysis.judging import systems as listed
from analysis.judging.systems import find, systems
from analysis.pages.claims_page import read
from analysis.pages.experiment_page import verdicts
from analysis.pages.systems_page import facts, page, verdicts_of
from testbed.cli import main
from testbed.errors import UserError

DOCS = Path(__file__).parents[2] / "docs"
CLAIMS, PAGE = (DOCS / "claims.md").read_text(), (DOCS / "systems.md").read_text()
SHOWN = {"effect": "2 [1, 3]", "what the effect is": "gap", "statement": "a|b."}
JUDGED = {"x-holds": {"claim": "x-holds", "verdict": "supported", **SHOWN}}
JUDGED["x-fails"] = {"claim": "x-fails", "verdict": "refuted", **SHOWN}


def experiments(named, claims=("x-holds", "x-fails")):
    """An experiment that judges the systems named, with these claims."""
    made = Experiment("x", question="Is it?", source="me", differs="it is small", systems=named)
    for name in claims:
        made.claim(name, statement="a|b.")(lambda: None)
    return {"x": made}


def row(n, named):
    return facts(JUDGED, experiments(named))[n - 1]


def call(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    return stop.value.code, *capsys.readouterr()


# The committed page


def test_there_are_122_systems_numbered_in_order():
    assert [each.n for each in systems().values()] == list(range(1, 123))


def test_the_page_of_systems_is_up_to_date():
    assert page(facts(read(CLAIMS))) == PAGE, "write it again: testbed systems page"


def test_a_row_of_the_page_is_judged_only_by_an_experiment_that_names_it_and_has_a_verdict():
    found, sections = verdicts(CLAIMS), re.split(r'<a id="system-(\d+)"></a>', PAGE)[1:]
    assert sections[::2] == [str(each.n) for each in systems().values()]
    for name, text in zip(systems(), sections[1::2], strict=True):
        state = re.search(r"\*\*(Judged|Judged in part|Not yet tried|Cannot be tried here)\.\*\*", text)[1]
        naming = {each for each in EXPERIMENTS if name in EXPERIMENTS[each].systems}
        shown = set(re.findall(r"^\*\*\[(.+?)\]\(experiments\.md", text, re.M))
        claims = dict(re.findall(r"^\| `(.+?)` \| (\w+) \|", text, re.M))
        assert shown == naming, name
        assert state.startswith("Judged") == bool(claims) == bool(naming), name
        assert claims.items() <= found.items(), name


# What counts


def test_an_experiment_that_names_a_system_judges_it_by_all_its_claims():
    judged = row(81, ("IQL",))
    assert judged["status"] == "judged"
    assert verdicts_of(judged) == "1 supported, 1 refuted"


def test_a_part_is_said_and_judged_by_its_own_claims():
    judged = row(81, {"IQL": Part("half of it", claims=("x-fails",))})
    assert judged["status"] == "judged in part"
    assert verdicts_of(judged) == "1 refuted"
    text = page([judged])
    assert "**[x](experiments.md#x)**: Is it?\nHere: it is small.\nWhat it judges: half of it." in text
    assert r"| `x-fails` | refuted | – | 2 [1, 3] | gap | a\|b. |" in text
    assert "`testbed experiments run x`" in text


def test_a_system_that_no_experiment_names_is_not_yet_tried_and_says_what_would_show_it():
    other = row(1, ("IQL",))
    assert other["status"] == "not yet tried"
    assert "**Not yet tried.** What would show it: Toy LLM with periodic weight sync" in page([other])


def test_a_system_out_of_reach_is_shown_with_the_reason(monkeypatch):
    monkeypatch.setitem(listed.OUT_OF_REACH, "IQL", "It needs a robot.")
    assert "**Cannot be tried here.** It needs a robot." in page([row(81, ())])
    with pytest.raises(UserError, match="'x' judges 'IQL', which OUT_OF_REACH says cannot be"):
        row(81, ("IQL",))


@pytest.mark.parametrize(
    ("named", "claims", "message"),
    [
        (("IQ",), ("x-holds",), "Unknown system in experiment x: 'IQ'. Did you mean 'IQL'"),
        (("IQL",), (), "Experiment 'x' judges 'IQL', but makes no claim"),
        ({"IQL": Part("half", claims=("y",))}, ("x-holds",), "judges 'IQL' by y; it makes x-holds"),
        (("IQL",), ("x-new",), "Claim 'x-new' has no verdict yet; write it first: testbed claims page"),
    ],
)
def test_a_system_named_in_vain_is_an_error(named, claims, message):
    with pytest.raises(UserError, match=re.escape(message)):
        facts(JUDGED, experiments(named, claims))


def test_a_page_of_claims_is_read_as_it_is_written():
    table = "| claim | verdict | statement |\n|---|---|---|\n| `{}` | refuted | a\\|b |\n"
    text = f"# Claims\n\n{table.format('p')}\n## q\n\n| claim | verdict |\n|---|---|\n| `q` | supported |\n"
    assert read(text) == {
        "p": {"claim": "p", "verdict": "refuted", "statement": "a|b"},
        "q": {"claim": "q", "verdict": "supported"},
    }


# The commands


@pytest.mark.parametrize("word", ["18", "m2po", "M2PO (Prosperity before Collapse)"])
def test_a_system_is_found_by_number_name_and_name_without_parentheses(word):
    assert find(word).n == 18


def test_names_without_parentheses_tell_the_systems_apart():
    assert len({name.split(" (")[0].lower() for name in systems()}) == 122


def test_systems_are_listed_and_counted(capsys):
    _, out, _ = call(capsys, "systems", "--json")
    assert [each["name"] for each in json.loads(out)] == list(systems())
    _, out, _ = call(capsys, "systems", "--status", "--json")
    count = json.loads(out)
    assert count.pop("reasons") == listed.OUT_OF_REACH
    assert sum(count.values()) == 122


def test_a_system_is_shown_and_the_page_written(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = call(capsys, "systems", "show", "ctpo")
    assert code == 0
    assert "commands   testbed experiments run gradients" in out
    assert re.search(r"^claim +prefix-ratio-variance: .*\nverdict +supported, effect", out, re.M)
    call(capsys, "systems", "page")
    assert (tmp_path / "docs" / "systems.md").read_text() == PAGE


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("show", "m2p"), "Unknown system 'm2p'. Did you mean 'm2po'? All: testbed systems"),
        (
            ("page", "--claims", "nowhere.md"),
            "nowhere.md: No such file or directory. Give the page of claims",
        ),
    ],
)
def test_a_mistake_gets_one_message(capsys, words, message):
    code, out, err = call(capsys, "systems", *words)
    assert (code, out) == (2, "")
    assert message in err
