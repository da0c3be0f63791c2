"""The table of verdicts is up to date, judged again only where something changed, and refuses damage."""

import hashlib
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from support.refusals import refuses

from analysis.experiment import EXPERIMENTS
from analysis.judging import digests, gates, preregistration, verdicts
from analysis.judging.claims import CLAIMS
from analysis.judging.comparisons import median_within
from analysis.tables.committed import Table, load_committed, manifest
from testbed.config.run import Run, cell_id
from testbed.errors import UserError

SHA = {name: entry["sha256"] for name, entry in manifest().items()}


def test_every_claim_has_a_row_and_no_row_is_older_than_what_it_rests_on():
    assert {row["claim"] for row in verdicts.stored()} == set(CLAIMS)
    stale = verdicts.changed(verdicts.stored(), SHA)
    assert not stale, f"judge again: testbed evidence judge --write ({', '.join(stale[:5])} …)"


def test_the_committed_verdicts_follow_from_the_committed_evidence_by_the_rule():
    rows = verdicts.stored()
    assert [row["verdict"] for row in verdicts.decide(rows)] == [row["verdict"] for row in rows]
    words = {row["leans"] for row in rows if row["kind"] == "identity"}
    assert words == {"supported"}, "an identity that does not hold is an error, no finding"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rapid-updates", "offline-iql", "staleness-cost"])
def test_judging_again_gives_the_committed_row(name):
    again = verdicts.judge([name])
    known = verdicts.by_claim()
    for row in again:
        kept = known[row["claim"]]
        assert (row["leans"], row["gates"], row["note"]) == (kept["leans"], kept["gates"], kept["note"])
        assert row["effect"] == pytest.approx(kept["effect"], rel=1e-4, abs=1e-9)


def test_a_row_is_judged_again_when_the_file_the_table_or_the_code_changes(monkeypatch):
    rows = verdicts.stored()
    assert verdicts.changed(rows, {**SHA, "rapid-updates": "0" * 64}) == ["rapid-updates"]
    first = next(iter(EXPERIMENTS["rapid-updates"].claims))
    assert len(EXPERIMENTS["rapid-updates"].claims) > 1
    older = [{**row, "code": "older"} if row["claim"] == first else row for row in rows]
    assert verdicts.changed(older, SHA) == ["rapid-updates"], "one claim older than the code is enough"
    monkeypatch.setattr(
        digests, "of_question", lambda name: "new" if name == "rapid-updates" else _kept(rows, name)
    )
    assert verdicts.changed(rows, SHA) == ["rapid-updates"]


def _kept(rows, name):
    return next((row["question"] for row in rows if row["experiment"] == name), "")


def test_the_code_of_a_claim_is_what_its_file_imports():
    reached = digests._reached(EXPERIMENTS.module("rapid-updates"))
    assert "analysis.judging.bets" in reached
    assert "analysis.pages.systems_page" not in reached


def test_the_file_of_a_package_is_its_init_whether_it_is_loaded_or_not(monkeypatch):
    monkeypatch.delitem(sys.modules, "analysis.planted_bugs", raising=False)
    assert digests._file("analysis.planted_bugs") == digests.ROOT / "analysis/planted_bugs/__init__.py"
    assert digests._file("analysis.planted_bugs.bug") == digests.ROOT / "analysis/planted_bugs/bug.py"


def test_a_claim_is_judged_by_the_tables_given_and_without_one_where_it_wants_none():
    exact = "a-gap-below-the-seed-spread-takes-dozens-of-seeds"
    (row,) = verdicts.judge(["seeds-for-a-gap"], {}, only=[exact])
    assert (row["claim"], row["verdict"], row["leans"]) == (exact, "", "supported")
    (row,) = verdicts.judge(["rapid-updates"], {}, only=[next(iter(EXPERIMENTS["rapid-updates"].claims))])
    assert row["verdict"] == verdicts.NOT_RUN


def test_a_changed_gate_and_a_changed_objection_have_claims_judged_again(monkeypatch):
    before = digests.of_code("rapid-updates", False)
    of_file = digests._of_file
    monkeypatch.setattr(digests, "_of_file", lambda p: "new" if p.name == "table_gates.py" else of_file(p))
    assert digests.of_code("rapid-updates", False) != before
    monkeypatch.undo()
    claim = next(iter(EXPERIMENTS["rapid-updates"].claims))
    monkeypatch.setattr(digests, "_objected", lambda: ((claim, "rival none"),))
    assert digests.of_code("rapid-updates", False) != before
    assert verdicts._standing(claim, SimpleNamespace(made={})) == "pilot"


@pytest.mark.parametrize(
    ("compute", "written", "standing"),
    [(None, "ds", "pre-set"), (len, "ds", "unchanged"), (None, "xs", "changed since"),
     (len, "dx", "changed since"), (None, "", "pilot")],
)  # fmt: skip
def test_a_claim_is_pre_set_if_design_and_statement_are_as_written(monkeypatch, compute, written, standing):
    today, then = ({"design": s[0], "claims": {"c": s[1]}} if s else {} for s in ("ds", written))
    monkeypatch.setattr(preregistration, "design", lambda _: today)
    made = SimpleNamespace(name="e", compute=compute, claims="c")
    assert preregistration.standing(made, "c", then) == standing


def test_a_design_is_written_once_and_claims_that_are_made_later_have_a_standing_too(tmp_path):
    from analysis.experiment import Experiment

    def named(said):
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]

    cells = (Run(seed=0), Run(seed=1), Run(seed=1, lag=3))
    made = Experiment("e", question="Is it?", source="s", cells=lambda: cells, keys=("seed",),
                      metrics=("accuracy",), margins={"m": 0.1})  # fmt: skip
    for name in "ab":
        made.claim(name, statement=f"{name}.")(lambda table: None)
        assert preregistration.standing(made, name, preregistration.design(made)) == "pre-set"
    kinds = sorted(cell_id(Run(lag=lag)) for lag in (0, 3))
    said = named(["Is it?", kinds, [0, 1], {"m": 0.1}, ["accuracy"]])
    written = {"design": said, "claims": {"a": named("a."), "b": named("b.")}}
    assert preregistration.read(made, tmp_path) == {}
    assert preregistration.commit(made, tmp_path / "new") == preregistration.design(made) == written
    path = tmp_path / "new" / "e.preset.json"
    path.write_text('{"design": "older"}')
    assert preregistration.commit(made, path.parent) == {"design": "older"}
    path.write_text("{")
    refuses("It says what was fixed before the runs", preregistration.read, made, path.parent)


def test_a_package_is_its_code_and_its_tables(monkeypatch):
    read = []
    monkeypatch.setattr(digests, "_of_file", lambda path: read.append(path.name) or "")
    digests._of_package.__wrapped__(("testbed", "recipes"))
    assert {"recipes.csv", "loops.py"} <= set(read)


def test_a_new_claim_changes_one_line(tmp_path):
    rows = list(verdicts.stored())
    verdicts.write(rows[::-1], tmp_path / "before.csv")
    assert (tmp_path / "before.csv").read_bytes() == verdicts.TABLE.read_bytes(), "sorted, five digits"
    verdicts.write([*rows, {**rows[0], "claim": "zzz-new", "effect": 0.123456}], tmp_path / "after.csv")
    assert verdicts.by_claim(verdicts.stored(tmp_path / "after.csv"))["zzz-new"]["effect"] == 0.12346
    before, after = ((tmp_path / name).read_text().splitlines() for name in ("before.csv", "after.csv"))
    assert len(set(after) - set(before)) == 1
    assert not set(before) - set(after)
    verdicts.write(rows, tmp_path / "after.csv")
    assert "zzz-new" not in verdicts.by_claim(verdicts.stored(tmp_path / "after.csv"))


def test_a_table_that_cannot_be_read_is_one_message(tmp_path):
    with pytest.raises(UserError, match="cannot be read: No such file.*testbed evidence judge --write"):
        verdicts.stored(tmp_path / "none.csv")
    (tmp_path / "old.csv").write_text("claim,verdict\n")
    with pytest.raises(UserError, match="Write it again with: testbed evidence judge --write --all"):
        verdicts.stored(tmp_path / "old.csv")


def test_invalid_claims_hold_up_nothing():
    row = {"verdict": "", "kind": "toy training", "leans": "supported", "e": 90.0, "half": "", "e_half": None}
    rows = [{**row, "gates": ""}] * 4 + [{**row, "gates": "acts: it did nothing"}] * 4
    # 4 valid of 8 at 90: 2 * 8 / (.05 * 90) = 3.6 are enough at 80, where 4 are needed.
    assert {each["verdict"] for each in verdicts.decide(rows)} == {"supported", "invalid: acts"}
    few = ([{**row, "gates": ""}] * 3 + [{**row, "gates": "acts: it did nothing"}] * 4
           + [{**row, "e": 0.0, "gates": ""}])  # fmt: skip
    assert "supported" not in {each["verdict"] for each in verdicts.decide(few)}


def test_objections_are_about_claims_that_exist_and_gates_that_are_known(tmp_path):
    assert set(gates.objections()) <= set(CLAIMS)
    path = tmp_path / "objections.csv"
    path.write_text("claim,gate,why\na,hedroom,x\n")
    refuses("Did you mean 'headroom'", gates.objections, path)
    path.write_text("claim,gate,why\na,headroom,x\na,acts,y\n")
    refuses("two lines about 'a'", gates.objections, path)


def test_a_check_of_the_table_is_a_gate_of_its_claim():
    import pandas as pd

    from analysis.experiment import Experiment

    made = Experiment("x", question="Is it?", source="y", compute=lambda: None, keys=("seed",))

    @made.claim("z", statement="z.", gates={"acts": lambda t: "" if t["moved"].any() else "no bound moved"})
    def _(table): ...

    entry = made.claims["z"]
    held, _ = gates.checked(entry, pd.DataFrame({"moved": [0, 1]}))
    failed, _ = gates.checked(entry, pd.DataFrame({"moved": [0, 0]}))
    assert (held.gate, held.holds) == ("acts", True)
    assert (failed.gate, failed.holds, failed.why) == ("acts", False, "no bound moved")


def test_a_table_of_another_design_is_refused_by_the_column_it_lacks():
    name, lacks = "rapid-updates", EXPERIMENTS["rapid-updates"].metrics[0]
    table = Table.of(name, load_committed([name])[name].frame.drop(columns=lacks))
    refuses(f"lacks {lacks}", verdicts._of_this_design, name, table)


def test_an_interval_contains_its_estimate_though_its_sequence_once_ruled_it_out():
    found = median_within([*np.ones(12), *np.zeros(13)], 2.0, "x")
    row = verdicts._evidence(found)
    assert (found.low, row["low"], row["effect"]) == (1.0, 0.0, 0.0)
    known = [row for row in verdicts.stored() if row["effect"] is not None]
    assert all(row["low"] <= row["effect"] <= row["high"] for row in known)


def test_a_digest_depends_on_what_is_said_and_not_on_the_order_of_names():
    one = preregistration.digest({"a": [1, 2], "b": {"c": 0.5, "d": None}})
    assert one == preregistration.digest({"b": {"d": None, "c": 0.5}, "a": [1, 2]})
    assert (len(one), len(f"{int(one, 16):x}") <= 16) == (16, True)
    others = {"a": [2, 1], "b": {"c": 0.5, "d": None}}, {"a": [1, 2], "b": {"c": 0.5}}
    assert one not in map(preregistration.digest, others)
