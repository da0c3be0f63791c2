"""Questions of users: every number on the page comes from data, and `testbed ask` finds what was judged."""

import json
import re
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from support.command_line import refused, told
from support.refusals import refuses

from analysis.judging.verdicts import by_claim
from analysis.questions import question_list, search
from analysis.questions.question import in_brief

ROOT = Path(__file__).parents[3]


def _same(found, kept):
    """Numbers agree to three digits; what is rounding on one machine is rounding on the other."""
    if isinstance(kept, dict):
        return found.keys() == kept.keys() and all(_same(found[name], kept[name]) for name in kept)
    if isinstance(kept, list):
        return len(found) == len(kept) and all(map(_same, found, kept))
    return found == kept if isinstance(kept, str) else bool(np.isclose(found, kept, rtol=1e-3, atol=1e-9))


def test_the_page_is_written_from_verdicts_and_stored_numbers():
    written = (ROOT / "docs" / "questions.md").read_text()
    numbers = question_list.stored()
    for question in question_list.find(()):
        answer = question.text(numbers.get(question.n, {}), by_claim())
        assert 2 <= len(re.findall(r"[.:?](?= [A-Z`]|$)", answer)) <= 5, answer
        assert "{" not in answer + question.scope(numbers.get(question.n, {}), by_claim())
        assert (question.compute is not None) == (question.n in numbers)
        tests = [ROOT / each for each in re.findall(r"tests/[\w/]+\.py", question.holds)]
        assert question.claims or tests or numbers[question.n]["table"]
        assert all(each.is_file() for each in tests), question.n
    assert len(question_list.find(())) >= 30
    assert question_list.page(by_claim(), numbers) == written, "again: testbed evidence pages questions"


def test_numbers_of_a_question_are_stored_beside_those_of_others(tmp_path, monkeypatch):
    monkeypatch.setattr(question_list, "STORED", tmp_path / "numbers.json")
    question_list.write({31: {"table": [{"a": 0.5}]}, 9: {"half": 1.5}})
    question_list.write({9: {"half": 2.5}, 4: {"cosine": [0.5, 0.25, 1.0]}, 99: {}})
    held = {4: {"cosine": [0.5, 0.25, 1.0]}, 9: {"half": 2.5}, 31: {"table": [{"a": 0.5}]}}
    assert [*question_list.stored().items()] == [*held.items()]
    assert question_list._rounded({"a": [1 / 3, 2, -9e-13], "b": "x"}) == {"a": [0.33333, 2, 0.0], "b": "x"}


def test_no_number_of_an_answer_is_typed_by_hand():
    known = r"chi-square|top-p|k[123]|fp8|1 / rank|1,1,1,1|2,2,2,2|[34]e-4"
    for question in question_list.find(()):
        bare = re.sub(r"\{[^}]*\}", "", re.sub(known, "", question.answer.lower()))
        assert not re.search(r"\d\.\d|\d{4}", bare), (question.n, bare)


def test_an_answer_says_where_a_verdict_has_left_its_words_behind():
    one = question_list.find([40])[0]
    judged = by_claim()
    name = "an-ewma-anchor-gains-over-missing-log-probabilities"
    now = judged | {name: judged[name] | {"verdict": "undecided", "effect": -0.004, "low": -0.01, "high": 0}}
    assert "by now" not in one.text({}, judged)
    text = one.text({}, now)
    assert "-0.004 [-0.010, 0.000]" in text
    assert text.endswith(f"The verdict on `{name}` is now undecided; this answer assumed supported.")


def test_a_finding_in_brief_says_how_exact_an_identity_is():
    row = {"kind": "identity", "effect": 7e-16, "low": 7e-16, "high": 7e-16, "n": 76.0, "tolerance": 1e-12}
    assert in_brief(row | {"verdict": "supported"}) == "supported, exact in 76 cases"
    row |= {"kind": "toy training", "effect": 0.2, "low": 0.1, "high": 0.31, "verdict": "undecided"}
    assert in_brief(row) == "0.2 [0.1, 0.31], undecided"
    assert in_brief(row | {"effect": None, "verdict": "undecided"}) == "undecided"


@pytest.mark.slow
def test_stored_numbers_are_computed_again():
    kept = question_list.stored()
    for question in question_list.find(()):
        if question.compute is not None:
            assert _same(question_list.compute(question), kept[question.n]), question.n


def test_closed_forms_of_answers():
    """E min(W, cap) of a normal log-weight by quadrature, the standardized step by hand for two answers."""
    from analysis.questions import counts

    x, w = np.polynomial.hermite_e.hermegauss(200)
    for variance in (0.1, 1.0, 4.0):
        draws = np.minimum(np.exp(np.sqrt(variance) * x - variance / 2), 2.0)
        assert counts._capped(variance, 2.0) == pytest.approx(float(w @ draws / w.sum()), abs=5e-3)
    assert counts._step("leave_one_out", 0.3, 0.0, 0.0, over_all=True) == pytest.approx(1.0)
    assert counts._step("group_mean", 0.3, 0.0, 0.0, over_all=True) == pytest.approx(7 / 8)


def test_ask_puts_what_names_both_first_and_knows_lags():
    found = search.ask(["is M2PO better than GRPO"])
    assert found.words == ("m2po", "grpo")
    assert found.complete
    assert {"m2po", "grpo"} <= set(search.tokens(found.claims[0]["name"].replace("-", " ")))
    assert [row["name"].split()[0] for row in found.systems] == ["M2PO"], "RGR-GRPO is not GRPO"
    assert {row["arm"] for row in found.arena} == {"m2po"}, "gains are over GRPO already"
    assert found.short == [], "no short answer is about M2PO"
    assert [row["name"] for row in search.ask(["which at lag 16"]).short] == ["At a lag of 16?"]
    assert "[^" not in search.ask(["what does waiting cost"]).short[0]["answer"]
    assert all(-1 < row["gain"] < 1 for row in search.ask(["m2po"]).arena)
    assert all(row["lag"] for row in search.ask(["grpo"]).arena), "fresh data have no gain to tell"
    assert sum(found.verdicts.values()) == found.total
    lags = search.ask(["which at lag 64"])
    assert lags.words == ("lag-64",)
    assert all("lag-64" in row["name"] for row in lags.claims)
    assert lags.total > len(lags.claims)
    assert {row["lag"] for row in lags.arena} == {64}, "a question without a method gets the best ones"
    assert all(len(list(rows)) == search.BEST for _, rows in groupby(lags.arena, lambda row: row["task"]))
    rows = [{"arm": "x", "gain": 0.1, "gain_low": low, "gain_high": h} for low, h in [(0.05, 0.2), (-1, 1)]]
    assert search.gains(rows) == ["x against tuned GRPO, 2 tasks and lags: 1 above, 0 below, 1 open."]
    assert {each["n"] for each in search.ask(["top-p"]).questions} == {6}


def test_ask_takes_plain_words_and_says_which_nothing_is_about():
    found = search.ask(["does", "clipping", "help", "on", "stale", "data", "for", "xyzzyq"])
    assert found.words == ("clipping", "stale", "data")
    assert found.unknown == ("xyzzyq",)
    assert "a-clip-helps-smollm2-on-old-data" in {row["name"] for row in found.claims}
    assert any("clip" in row["name"] for row in found.findings)
    assert not found.systems, "Missing Old Logits is not asked about"
    near = search.ask(["importance weights of ESS"])
    assert not near.complete
    assert near.claims
    assert all(search.in_words(search._claim(row)) for row in by_claim().values()), "of any kind"
    assert len({search._stem(word) for word in ("clip", "clips", "clipped", "clipping")}) == 1
    assert {search._stem(word) for word in ("stale", "staleness")} == {"stal"}
    assert len({search._stem(word) for word in ("ess", "loss", "lag", "lags")}) == 3


def test_a_question_asked_in_other_words_is_answered_before_near_claims(capsys):
    """All four are questions of public threads; the near claims that came first are about other things."""
    for n, words in {
        1: "whose logprobs go under the ratio, rollout or recomputed", 2: "drop wait or pace stale rollouts",
        4: "temperature raw or processed log-probs", 5: "keep the cache or recompute after a weight update",
    }.items():  # fmt: skip
        lines = told(capsys, "ask", *words.split()).splitlines()
        asked = next(at for at, line in enumerate(lines) if line.startswith(f"Question {n}: "))
        assert asked < next(at for at, line in enumerate(lines) if "Nearest: " in line)
    for n, word in {
        5: "kv", 12: "aggregation", 13: "truncation", 14: "normalization", 22: "partial", 23: "overlong",
        28: "microbatch", 35: "dynamic", 7: "reference",
    }.items():  # fmt: skip
        found = search.ask([word])
        assert n in {each["n"] for each in found.questions}, word
        assert found.unknown == ()
    assert search.ask(["processed logprobs"]).unknown == ()
    answer = search.ask(["keep the cache"]).questions[0]["answer"]
    assert answer.startswith("Compute it again")
    assert answer.endswith(".")


def test_ask_refuses_unknown_and_empty_questions():
    refuses("'m2pp'. Did you mean 'm2po'.*docs/questions.md", search.ask, ["m2pp"])
    refuses("no word to search for", search.ask, ["what", "is", "better"])


def test_ask_and_questions_on_the_command_line(capsys):
    found = json.loads(told(capsys, "ask", "topr", "--json"))
    judged = by_claim()
    assert found["claims"]
    assert all(judged[row["name"]]["verdict"] == row["verdict"] for row in found["claims"])
    assert {row["arm"] for row in found["arena"]} == {"topr"}
    assert found["claims"][0]["name"] in told(capsys, "ask", "topr")
    refused(capsys, "ask", "xyzzyq")
    refused(capsys, "evidence", "questions", "99")
    again = json.loads(told(capsys, "evidence", "questions", "9", "--json"))[0]
    assert _same(again["half"], question_list.stored()[9]["half"])
