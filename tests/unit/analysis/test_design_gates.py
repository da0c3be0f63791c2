"""Gates that a declaration answers with its table: a violation of each fails, a fair design passes.

Gates that a table answers: an unfair comparison fails the gate that is meant for it, a fair one passes.
"""

import inspect
import math
import re
import sys
from functools import partial

import numpy as np
import pandas as pd
import pytest
from support.refusals import refuses

from analysis.experiment import EXPERIMENTS, Experiment
from analysis.judging import claims, gates, source_drift, table_gates
from analysis.judging.claims import CLAIMS
from analysis.judging.comparison import Comparison
from analysis.judging.comparisons import Read, arms, happens_mostly
from analysis.judging.e_values import MEDIAN, Evidence, exceeds
from analysis.judging.source_drift import Range
from analysis.judging.system_list import systems
from analysis.judging.table_gates import unmeasured
from analysis.judging.verdicts import by_claim
from analysis.tables import remeasured as remeasured_runs
from analysis.tables.committed import REMEASURED, load_committed, remeasured
from testbed.config.run import Run
from testbed.errors import UserError

GOOD, BAD, OFF = {"arm": "good"}, {"arm": "bad"}, {"arm": "off"}
GAIN = Comparison("above", "accuracy", GOOD, BAD)


def table(**means):
    rng = np.random.default_rng(28)
    rows = [{"arm": arm, "seed": seed, "accuracy": mean + 0.01 * rng.normal()} for arm, mean in means.items()
            for seed in range(32)]  # fmt: skip
    return pd.DataFrame(rows)


def test_a_computed_outcome_leaves_its_table_as_it_was():
    frame = table(good=1.0, bad=0.5)
    Comparison("above", lambda each: each["accuracy"] ** 2, GOOD, BAD)(frame)
    assert list(frame) == list(table(good=1.0))


def test_a_table_has_none_for_an_argument_that_a_cell_leaves_out():
    assert gates._value(Run(task="bandit"), "task_args.digits") is None


def holds(answers):
    return {answer.gate: answer.holds for answer in answers}


def evidence(word):
    return Evidence(
        0.1, 0.0, 0.2, 32, "gain", e={"supported": 0.1, "refuted": 0.1, "no difference": 0.1, word: 99.0}
    )


def rates(**edges):
    rows = [
        {"arm": arm, "at_edge": edge, "score": score, "learning_rate": 0.1}
        for arm, (edge, score) in edges.items()
    ]
    return pd.DataFrame(rows)


def read(column="accuracy", good=0.8, bad=0.5):
    return [Read(column, where, np.full(8, x)) for where, x in ((GOOD, good), (BAD, bad))]


INSIDE, EDGE, FULL = ("", 0.5), ("low", 0.5), ("high", 0.99)


@pytest.mark.parametrize(
    ("wanted", "chosen", "reads", "word"),
    [(True, rates(good=INSIDE, bad=INSIDE), read(), "supported"),
     (False, rates(good=INSIDE, bad=EDGE), read(), "supported"),
     (True, rates(good=EDGE, bad=INSIDE), read(), "supported"),
     (False, rates(good=EDGE, bad=INSIDE), read(), "no difference"),
     (True, rates(good=EDGE, bad=INSIDE), read(), "refuted"),
     (True, rates(good=INSIDE, bad=FULL), read(), "supported"),
     (False, rates(good=EDGE, bad=INSIDE), read("collapsed"), "supported"),
     (True, rates(good=INSIDE, bad=EDGE), read("rollouts_to 0.8", 900.0, 300.0), "supported"),
     (False, rates(good=INSIDE, bad=EDGE), read("rollouts_to 0.8", 300.0, math.nan), "supported"),
     (None, rates(good=EDGE, bad=EDGE), read("val/entropy"), "supported"),
     (None, rates(good=EDGE, bad=EDGE), read()[:1], "supported"),
     (None, rates(other=EDGE), read(), "supported"),
     (False, rates(bad=EDGE), read(), "supported")],
)  # fmt: skip
def test_who_loses_must_have_its_rate_inside_the_grid(wanted, chosen, reads, word):
    found = [*gates.tuned(chosen, exceeds, reads, evidence(word))]
    assert holds(found).get("tuned") is wanted
    if wanted is not None:
        edges = [f"0.1 at {row.arm} (low)" for row in chosen.itertuples() if row.at_edge and not wanted]
        edges = edges if word == "no difference" or len(edges) < 2 else edges[1:]
        told = f"at the edge of its grid: {'; '.join(edges)}" if edges else "2 rates, no edge that counts"
        assert found[0].why == told


def test_of_many_arms_a_comparison_alone_says_which_are_compared():
    reads = [*read(), Read("accuracy", OFF, np.full(8, 0.1))]
    chosen, said = rates(good=INSIDE, bad=EDGE, off=EDGE), evidence("supported")
    assert not holds(gates.tuned(chosen, exceeds, reads, said))
    assert holds(gates.tuned(chosen, Comparison("above", "accuracy", GOOD, BAD), reads, said)) == {
        "tuned": False
    }


@pytest.mark.parametrize(("level", "failing", "pilots", "word", "wanted"), [
    (0.9, 4, 31, "supported", False), (0.9, 4, 32, "supported", True), (0.9, 3, 31, "supported", None),
    (0.2, 4, 31, "refuted", None), (0.2, 4, 31, "no difference", False),
])  # fmt: skip
def test_where_a_tenth_of_the_runs_fails_32_pilots_choose_unless_the_arm_wins(
    level, failing, pilots, word, wanted
):
    shaky = np.where(np.arange(32) < failing, 0.19, 0.4)
    reads = [Read("accuracy", GOOD, np.full(32, level)), Read("accuracy", BAD, shaky)]
    found = [*gates.enough_pilots({"good": 4, "bad": pilots}, reads, evidence(word))]
    assert holds(found).get("tuned") is wanted
    told = f"{pilots} pilot seeds chose the setting of bad, and 12% of its runs fail"
    assert [each.why for each in found] == [told] * (wanted is not None)


def test_rates_are_those_that_the_cells_are_made_with():
    found = gates.rates_of("rapid-updates")
    row = found[(found["recipe"] == "rapid") & (found["staleness_args"] == "period=2")].iloc[0]
    assert (row["learning_rate"], row["at_edge"]) == (0.001, "")
    assert gates.rates_of("lag-schedules").empty


def test_data_of_the_first_model_are_told_by_the_arms_whose_lag_is_exact(monkeypatch):
    cells = (Run(lag=3, steps=9), Run(lag=4, staleness="uniform"), Run(staleness="offline"))
    made = Experiment("e", question="Is it?", source="s", cells=lambda: cells, keys=("lag", "seed"))
    monkeypatch.setattr(gates, "EXPERIMENTS", {"e": made})
    assert gates.base_data_of.__wrapped__("e").to_dict("records") == [{"lag": 3, "steps": 9}]


# Worlds, collapses, old data


@pytest.mark.parametrize(("seeds", "wanted"), [(19, False), (20, True)])
def test_worlds_are_at_least_twenty(seeds, wanted):
    made = Experiment("private-networks", question="Is it?", source="s", compute=table, keys=("seed",))
    frame = pd.DataFrame({"seed": [-1, *range(seeds)]})
    assert holds(gates.worlds(made, frame)) == {"worlds": wanted}
    queue = EXPERIMENTS["actor-learner"]
    assert not holds(gates.worlds(queue, frame))


@pytest.mark.parametrize(
    ("task", "arguments", "wanted"),
    [("bandit", [{"contexts": 8}], {"worlds": False}), ("bandit", [{"contexts": 24}], {"worlds": True}),
     ("garnet", [{"seed": seed} for seed in range(20)], {"worlds": True}), ("chain", [{}], {})],
)  # fmt: skip
def test_cells_on_random_worlds_have_at_least_twenty(task, arguments, wanted):
    cells = tuple(Run(task=task, task_args=tuple(each.items())) for each in arguments)
    made = Experiment("regimes", question="Is it?", source="s", cells=lambda: cells, keys=("seed",))
    assert holds(gates.worlds(made, pd.DataFrame({"seed": range(64)}))) == wanted


def test_nobody_is_spared_a_collapse_that_nobody_has():
    some, none = (
        pd.DataFrame({"seed": range(32), "collapsed": x}) for x in (np.arange(32) % 2, np.zeros(32))
    )
    reads = [Read("collapsed", {}, np.zeros(32))]
    spared = happens_mostly(np.ones(32), "spared")
    (found,) = gates.collapses(reads, some, spared)
    assert (found.holds, found.why) == (True, "16 of 32 runs collapse")
    assert holds(gates.collapses(reads, none, spared)) == {"acts": False}
    assert not holds(gates.collapses(reads, none, happens_mostly(np.zeros(32), "collapses")))
    assert not holds(gates.collapses(read(), none, spared))
    assert holds(gates.collapses([*read(), *reads], none, spared)) == {"acts": False}

    def check(frame):
        for column in ("accuracy", "collapsed"):
            arms(frame, column, {"good": GOOD})
        return spared

    assert not said(rows_table(0.8, 0.5, collapsed=0.0), lambda claim: claim(check))["acts"].holds


def test_most_steps_learn_from_other_data_than_the_first_models():
    base = pd.DataFrame({"arm": ["good", "bad"], "lag": [16, 64], "steps": [320, 320]})
    for lags in ([16, 64], [16, 192], [16, 256], [16, 320], [320, 400]):
        (found,) = gates.long_enough(base.assign(lag=lags), read())
        assert found.holds is (lags != [16, 256]), lags
        purpose = "fixed data of the first model on purpose"
        share = max((lag / 320 for lag in lags if lag < 320), default=None)
        why = purpose if share is None else f"at most {share:.2g} of all steps on data of the first model"
        assert found.why == why
    assert not holds(gates.long_enough(base.assign(lag=0), read()))


@pytest.mark.parametrize(
    ("wanted", "rises", "say", "bad"),
    [
        (True, (0.0, 0.0), "above", 0.5),
        (True, (0.1, 0.2), "above", 0.5),  # a gap of .3 closes by a third
        (True, (0.2, 0.0), "above", 0.5),
        (False, (0.1, 0.3), "above", 0.5),
        (True, (0.02, 0.0), "equal", 0.8),
        (False, (0.0, 0.04), "equal", 0.8),
        (True, (0.2, 0.0), "equal", 0.5),  # it may open, and not close
        (False, (0.0, 0.2), "equal", 0.5),
        (True, (0.0, 0.02), "no worse", 0.8),  # about 0: by the margin
        (False, (0.0, 0.04), "no worse", 0.8),
    ],
)
def test_a_gap_of_finals_is_not_closing_nor_equals_parting_when_training_stops(wanted, rises, say, bad):
    frame = rows_table(0.8, bad, kl=0.1, clip_share=0.1)
    frame["rise accuracy"] = np.repeat(rises, 32)
    equal = lambda claim: claim.equal("accuracy", GOOD, BAD, within=0.05)  # noqa: E731
    asked = {"above": gain(0.1), "equal": equal, "no worse": gain(-0.05)}
    assert said(frame, asked[say])["long enough"].holds is wanted


def test_a_table_without_a_curve_fails_unless_its_runs_were_made_again_or_it_is_listed(monkeypatch):
    frame = rows_table(0.8, 0.5, kl=0.1, clip_share=0.1)
    assert not said(frame, gain(0.1))["long enough"].holds
    for rises, wanted in ((0.0, True), (0.2, False)):
        again = frame.assign(**{"rise accuracy": rises * (frame["arm"] == "bad")})
        monkeypatch.setattr(table_gates, "remeasured", {"e": again}.get)
        assert said(frame, gain(0.1))["long enough"].holds is wanted
        assert unmeasured(f"long enough: {said(frame, gain(0.1))['long enough'].why}") == []
    few = again.assign(**{"rise accuracy": again["seed"] % 2 * (again["arm"] == "bad")})[again["seed"] < 4]
    monkeypatch.setattr(table_gates, "remeasured", {"e": few}.get)
    assert "not recorded, so few runs leave it open" in said(frame, gain(0.1))["long enough"].why
    monkeypatch.setattr(table_gates, "remeasured", {"e": again[again["arm"] == "good"]}.get)
    assert not said(frame, gain(0.1))["long enough"].holds
    monkeypatch.setitem(table_gates.UNMEASURED, "e", "too dear")
    assert said(frame, gain(0.1))["long enough"].why == "not recorded, too dear"


def test_a_lag_without_its_drift_is_told_by_runs_made_again(monkeypatch):
    frame = rows_table(0.8, 0.5, clip_share=0.1)
    monkeypatch.setattr(gates, "remeasured", {"e": frame.assign(kl=0.3)}.get)
    assert said(frame, gain(0.1))["drift"].why == "KL 0.3, clip share 0.1"
    again = frame[frame["arm"] == "good"].assign(kl=0.3)
    monkeypatch.setattr(gates, "remeasured", {"e": again}.get)
    assert not said(frame, gain(0.1))["drift"].holds


def test_arms_of_a_family_on_old_data_need_their_drift(monkeypatch):
    frame = rows_table(0.8, 0.5, clip_share=0.1)
    again = frame.assign(kl=0.3, lag=5.5)
    ask = lambda old: [*gates.drift(GAIN, frame.drop(columns="lag"), read(), "e", (), old)]  # noqa: E731
    assert ask(()) == ask(("another",)) == []
    assert [each.holds for each in ask(("bad",))] == [False]
    monkeypatch.setattr(gates, "remeasured", {"e": again}.get)
    assert [each.why for each in ask(("bad",))] == ["KL 0.3, clip share 0.1"]


def test_runs_are_made_again_where_a_gate_is_open_and_added_to(monkeypatch, tmp_path):
    made = Experiment("e", question="Is it?", source="s", compute=rows_table, keys=("arm", "seed"))
    gain(0.1)(made.claim("c", "It is so."))
    frame = rows_table(0.8, 0.5, kl=0.1, clip_share=0.1)
    frame = pd.concat([frame, frame.assign(seed=frame["seed"] + 1_000_000)])
    asked = []

    def run(arm, seeds):
        asked.append(arm)
        return pd.DataFrame({**arm, "seed": seeds, "x": 0.5})

    known = [(arm, partial(run, arm)) for arm in (GOOD, BAD, OFF)]
    monkeypatch.setattr(remeasured_runs, "arms", lambda _: known)
    path = tmp_path / "e.csv"
    remeasured_runs.measure(made, frame, 1, path)
    first = pd.read_csv(path)
    assert [*zip(first["arm"], first["seed"], strict=True)] == [
        (arm, seed) for arm in ("bad", "good") for seed in (0, 1_000_000)
    ]
    path.write_text(path.read_text().replace("0.5", "0.25"))
    remeasured_runs.measure(made, frame, 2, path)
    both = pd.read_csv(path)
    assert sorted(both["seed"][both["arm"] == "bad"]) == [0, 1, 1_000_000, 1_000_001]
    assert (both["x"] == 0.25).sum() == 4
    remeasured_runs.measure(made, frame, 2, path)
    remeasured_runs.measure(made, frame.assign(**{"rise accuracy": 0.0}), 9, path)  # now no gate is open
    assert asked == [GOOD, BAD] * 2


def test_a_comparison_at_a_budget_that_its_design_states_may_end_while_the_gap_closes():
    why = {row["claim"]: row["checked"] for row in by_claim().values() if row["experiment"] == "arena"}
    assert "at a budget, sorted 300 steps" in why["m2po-gains-over-tuned-grpo-at-lag-64-on-sorted"]
    frame = rows_table(0.8, 0.5)
    frame["rise accuracy"] = np.repeat([0.1, 0.3], 32)
    made = Experiment("e", question="Is it?", source="s", compute=rows_table, keys=("arm", "seed"))
    gain(0.1)(made.claim("c", "It is so."))
    evidence, units, arms = gates.examine(made.claims["c"], frame)
    found = table_gates.answers(made.claims["c"].function, units, arms, evidence, "e", "900 steps")
    (answer,) = [each for each in found if each.gate == "long enough"]
    assert answer.holds
    assert answer.why.startswith("at a budget, 900 steps; the gap closes by 0.6")


def test_gates_see_both_runs_of_a_table_with_seeds_of_their_own():
    runs = rows_table(0.8, 0.5).assign(run="first"), rows_table(0.8, 0.5).assign(run="replication")
    made = Experiment("e", question="Is it?", source="s", compute=rows_table, keys=("arm", "seed"))
    gain(0.1)(made.claim("c", "It is so."))
    seen = gates.examine(made.claims["c"], pd.concat(runs))
    assert (seen.evidence.n, [run.n for run in seen.evidence.runs]) == (64, [32, 32])
    assert {*seen.table["seed"]} == {*range(32), *range(1_000_000, 1_000_032)}
    assert [(arm.where, len(arm.values)) for arm in seen.read] == [(GOOD, 64), (BAD, 64)]


# An arm in the method's place


def asked(frame, **more):
    made = Experiment("e", question="Is it?", source="s", compute=table, keys=("arm", "seed"))
    made.claim("c", "It is so.").compare("accuracy", GOOD, BAD, by=0.1, **more)
    return holds(gates.checked(made.claims["c"], frame))


@pytest.mark.parametrize("gate", ["off", "rival"])
def test_without_its_mechanism_the_claim_must_fail(gate):
    name = {"off": "off-switch", "rival": "rival"}[gate]
    assert asked(table(good=0.8, bad=0.5, off=0.5), **{gate: OFF})[name]
    assert not asked(table(good=0.8, bad=0.5, off=0.8), **{gate: OFF})[name]
    assert name not in asked(table(good=0.8, bad=0.5))
    with pytest.raises(UserError, match=r"names \{'arm': 'off'\} for the gate .* no such row; add that arm"):
        asked(table(good=0.8, bad=0.5), **{gate: OFF})
    refuses(r"names \{'arm': 'bad'\} for the gate 'rival'", asked, table(good=0.8, off=0.5), **{gate: OFF})


def test_an_event_that_also_happens_without_the_mechanism_says_nothing():
    made = Experiment("e", question="Is it?", source="s", compute=table, keys=("arm", "seed"))
    made.claim("c", "It is so.").happens("accuracy", GOOD, spared=True, off=OFF)
    assert holds(gates.checked(made.claims["c"], table(good=0.2, bad=0.5, off=0.8)))["off-switch"]
    assert not holds(gates.checked(made.claims["c"], table(good=0.2, bad=0.5, off=0.2)))["off-switch"]


def test_a_gate_that_is_unknown_is_refused_where_it_is_declared():
    made = Experiment("e", question="Is it?", source="s", compute=table, keys=("arm", "seed"))
    with pytest.raises(UserError, match=r"declares gate 'head-room'; expected headroom, tuned"):
        made.claim("c", "It is so.", gates={"head-room": len}).compare("accuracy", GOOD, BAD)


def test_committed_claims_fail_where_a_hand_finds_it():
    def failed(claim):
        entry = CLAIMS[claim]
        name = entry.promises["experiment"]
        return [a.gate for a in gates.checked(entry, load_committed([name])[name].frame) if not a.holds]

    assert failed("mis-gains-on-temperature-rollouts-at-lag-0") == ["tuned"]


def test_an_objection_of_a_review_is_a_failed_gate():
    (found,) = gates.checked(CLAIMS["m2po-ends-above-tuned-grpo-at-lag-256-on-long"], None)
    assert (found.gate, found.holds) == ("acts", False)


def rows_table(good, bad, **more):
    rng = np.random.default_rng(20_261)
    rows = [{"arm": arm, "lag": 8, "seed": seed, "accuracy": float(np.clip(mean + 0.01 * rng.normal(), 0, 1))}
            for arm, mean in (("good", good), ("bad", bad)) for seed in range(32)]  # fmt: skip
    return pd.DataFrame(rows).assign(**more)


def said(frame, say):
    made = Experiment("e", question="Is it?", source="s", compute=rows_table, keys=("arm", "seed"))
    say(made.claim("c", "It is so."))
    every = gates.checked(made.claims["c"], frame)
    assert sum(answer.gate == "tuned" for answer in every) <= 1
    return {answer.gate: answer for answer in every}


def gain(by):
    return lambda claim: claim.compare("accuracy", GOOD, BAD, by=by)


@pytest.mark.parametrize(
    ("holds", "why", "frame", "by"),
    [(True, "2 arms from 0.501 to 0.802", rows_table(0.8, 0.5), 0.1),
     (True, "2 arms from 0.501 to 0.992", rows_table(0.99, 0.5), 0.1),
     (True, "2 arms from 0.00248 to 0.502", rows_table(0.5, 0.001), 0.1),
     (False, "2 arms from 0.999 to 1; all pile up at 1", rows_table(0.999, 0.998), 0.0),
     (False, "2 arms from 0.00317 to 0.00348; all pile up at 0", rows_table(0.001, 0.002), 0.1),
     (False, "a gain of 1.6 is asked where 0.2 is left", rows_table(0.9, 0.8), 1.6),
     (False, "a gain of 0.05 is asked where 0.036 is left", rows_table(0.97, 0.96), 0.05)],
    ids=["room", "up to 1", "from 0", "both at 1", "both at 0", "three times .8", "no room for the gain"],
)  # fmt: skip
def test_arms_have_headroom(holds, why, frame, by):
    found = said(frame, gain(by))["headroom"]
    assert (found.holds, found.why) == (holds, why)


@pytest.mark.parametrize(("typical", "holds"), [("mean", True), ("median", False)])
def test_runs_that_fail_leave_room_for_a_gain_in_the_mean_alone(typical, holds):
    frame = rows_table(0.97, 0.97)
    frame.loc[(frame["arm"] == "bad") & (frame["seed"] < 4), "accuracy"] = 0.0
    compared = lambda claim: claim.compare("accuracy", GOOD, BAD, by=0.05, typical=typical)  # noqa: E731
    assert said(frame, compared)["headroom"].holds is holds


@pytest.mark.parametrize(
    ("holds", "outcome", "way", "first", "second"),
    [(True, "score", "above", 0.8, 0.9), (False, "score", "above", 0.9, 0.97),
     (True, "score", "below", 0.9, 0.97), (False, "score", "below", 0.97, 0.9),
     (True, "regret", "above", 0.06, 0.5), (False, "regret", "above", 0.04, 0.5),
     (True, "regret", "below", 0.01, 0.06), (False, "regret", "below", 0.5, 0.04),
     (True, "seconds", "above", 0.9, 0.97)],
)  # fmt: skip
def test_a_gain_of_scores_fits_below_1_and_one_of_regrets_above_0(holds, outcome, way, first, second):
    frame = rows_table(first, second).assign(
        accuracy=lambda rows: rows["arm"].map({"good": first, "bad": second})
    )
    below = {"below": way == "below"}
    by = -0.05 if way == "below" else 0.05
    found = said(
        frame.rename(columns={"accuracy": outcome}),
        lambda claim: claim.compare(outcome, GOOD, BAD, by=by, **below),
    )
    assert ("headroom" not in found or found["headroom"].holds) is holds


def test_an_arm_that_is_another_under_a_new_name_did_not_act():
    fair = rows_table(0.8, 0.5)
    same = fair.assign(accuracy=np.tile(fair["accuracy"][:32], 2))
    one_apart = same.assign(accuracy=same["accuracy"] + 0.01 * (same.index < 4))
    assert "acts" not in said(fair, gain(0.1))
    assert "acts" not in said(one_apart, gain(0.0))
    found = said(same, gain(0.0))["acts"]
    assert (found.holds, found.why) == (False, "both arms have the same outcome on 100% of the seeds or more")
    few = same[same["seed"] < 8]
    assert not said(few, gain(0.0))["acts"].holds
    assert "acts" not in said(few[few["seed"] < 7], gain(0.0))
    assert "acts" not in said(same, lambda claim: claim.equal("accuracy", GOOD, BAD, within=0.1))


def test_arms_that_a_check_reads_by_itself_need_headroom_too():
    def read(frame):
        both = arms(frame, "accuracy", {"good": GOOD, "bad": BAD})
        return exceeds(both["good"] - both["bad"], 0.0, "gain", MEDIAN)

    assert said(rows_table(0.8, 0.5), lambda claim: claim(read))["headroom"].holds
    failed = said(rows_table(0.999, 0.998), lambda claim: claim(read))["headroom"]
    assert not failed.holds
    assert "all pile up at 1" in failed.why


def test_an_optimum_at_the_edge_of_its_grid_is_not_tuned():
    sides = "one cell of the first arm", "one cell of the second"
    for at, where in (
        (0, ()),
        (1, sides),
        (np.repeat([0, 1], 32), sides[1:]),
        (np.repeat([1, 0], 32), sides[:1]),
    ):
        found = said(rows_table(0.8, 0.5, at_edge=at), gain(0.1))["tuned"]
        why = f"at the grid's edge: {', '.join(where)}" if where else "optimum inside"
        assert (found.holds, found.why) == (not where, why)


@pytest.mark.parametrize(
    ("wanted", "measured"),
    [(True, {"kl": 0.25, "clip_share": 0.1}), (True, {"log10 kl": -1.0, "mean actor/clip_share": 0.1}),
     (False, {"kl": 0.25}), (False, {"clip_share": 0.1}), (False, {"kl": np.nan, "clip_share": 0.1}),
     (False, {"kl": np.repeat([0.25, np.nan], 32), "clip_share": 0.1})],
)  # fmt: skip
def test_a_lag_is_told_with_what_it_did(wanted, measured):
    frame = rows_table(0.8, 0.5, **measured)
    assert said(frame, gain(0.1))["drift"].holds is wanted
    assert "drift" not in said(frame.assign(lag=0), gain(0.1))


def test_the_drift_of_an_arm_is_that_of_its_rows_on_old_data():
    frame = rows_table(0.8, 0.5, lag=np.tile([0, 8], 32), kl=np.tile([9.0, 0.25], 32), clip_share=0.1)
    assert said(frame, gain(0.1))["drift"].why == "KL 0.25, clip share 0.1"


@pytest.mark.parametrize(
    ("cells", "reads", "wanted"),
    [((Run(policy="hf", model="m"), Run()), "", "real model"),
     ((Run(), Run(policy="toy")), "", "toy training"), ((Run(),), "", "small world"),
     (None, "trains", "toy training"), (None, "loads_a_model", "real model"), (None, "", "small world")],
)  # fmt: skip
def test_evidence_is_of_what_its_cells_or_its_code_run(monkeypatch, cells, reads, wanted):
    for name in ("trains", "loads_a_model"):
        monkeypatch.setattr(claims.digests, name, lambda _, name=name: name == reads)
    given = {"compute": rows_table} if cells is None else {"cells": lambda: cells}
    made = Experiment("e", question="Is it?", source="s", keys=("arm", "seed"), **given)
    assert claims._made_of(made) == wanted


def test_a_claim_is_found_through_the_committed_table_where_there_is_one(monkeypatch, tmp_path):
    assert claims.committed.__wrapped__()["m2po-gains-over-tuned-grpo-at-lag-64-on-sorted"] == "arena"
    monkeypatch.setattr(claims, "VERDICTS", tmp_path / "none.csv")
    assert claims.committed.__wrapped__() == {}


def drifts(frame, monkeypatch, *rows):
    """Return the gate's answer on a claim about a system whose source speaks of these ranges."""
    known = {"S": tuple(Range(*row, "arXiv") for row in rows)}
    monkeypatch.setattr(source_drift, "spoken", lambda: known)
    (found,) = gates.drift(GAIN, frame, read(), "e", ("S", "not looked at"))
    return found


@pytest.mark.parametrize("driven", ["good", "bad"])
def test_no_compared_arm_may_drift_further_than_the_source_speaks_of(monkeypatch, driven):
    frame = rows_table(0.8, 0.5, kl=0.1, clip_share=0.1)
    far = frame.assign(kl=np.where(frame["arm"] == driven, 0.5, 0.1))
    assert drifts(frame, monkeypatch, ("KL", 0.0, 0.2)).holds
    assert not drifts(far, monkeypatch, ("KL", 0.0, 0.2)).holds
    assert not drifts(frame, monkeypatch, ("KL", 0.15, 0.2)).holds
    assert "source KL 0 to 0.2, here 0.5: above" in drifts(far, monkeypatch, ("KL", 0.0, 0.2)).why


def test_lag_and_clip_share_are_told_beside_the_source_and_refuse_nothing(monkeypatch):
    frame = rows_table(0.8, 0.5, kl=0.1, clip_share=np.repeat([0.3, 0.1], 32))
    frame.loc[0, ["lag", "clip_share"]] = 99, 0.9  # one seed of many moves no median
    found = drifts(frame, monkeypatch, ("lag", 0, 7), ("clip share", 0.2, 0.4))
    assert found.holds
    measured, *beside = found.why.split(", source ")
    assert measured == "KL 0.1, clip share 0.3"
    assert beside == ["lag 0 to 7, here 8: above", "clip share 0.2 to 0.4, here 0.3: inside"]
    assert drifts(frame, monkeypatch).why.endswith("its source gives none that was read")


def test_what_sources_say_of_drift_names_listed_systems_and_its_place(tmp_path):
    assert set(source_drift.spoken()) <= set(systems())
    told = [row for row in by_claim().values() if "drift: KL" in row["checked"] and row["systems"]]
    assert all(name in source_drift.spoken() for row in told for name in row["systems"].split("; "))
    assert all(e.where and e.low <= e.high for found in source_drift.spoken().values() for e in found)
    path = tmp_path / "d.csv"
    path.write_text("system,measure,low,high,where\nOAPL,speed,0,1,here\n")
    refuses("measure of drift", source_drift.spoken, path)


def test_a_table_is_excused_from_the_measurement_only_while_it_lacks_it():
    missing = [row for row in by_claim().values() if unmeasured(row["checked"])]
    assert all(table_gates.excuse(row)[-1] not in ": " for row in missing)
    assert set(table_gates.UNMEASURED) <= {row[key] for row in missing for key in ("claim", "experiment")}
    for path in REMEASURED.glob("*.csv"):
        experiment, again = EXPERIMENTS[path.stem], remeasured(path.stem)
        assert set(again.columns) & set(experiment.keys) == set(experiment.keys) - {"run"}
        assert not again.duplicated([key for key in experiment.keys if key != "run"]).any(), path


def test_every_comparison_says_how_its_arms_are_set_and_no_central_one_has_one_setting():
    central = {claim for each in systems().values() for claim in each.central}
    said = {row["claim"]: f"{row['gates']}; {row['checked']}" for row in by_claim().values()}
    assert not [claim for claim, text in said.items() if table_gates.NOBODY in text]
    assert not [claim for claim in central if "tuned: one setting" in said[claim]]
    assert set(table_gates.SETTINGS) <= set(EXPERIMENTS) | set(CLAIMS)
    assert {how for how, _ in table_gates.SETTINGS.values()} <= set(table_gates.HOW)


GRID = re.compile(r"Tuned\(|TunedArms\(|Family\(|\btuned\(|\bbest\(|min\(\s*RATES|at_rates\(")
"""Ways to choose a setting from a grid, or to make a table of one."""


def test_comparisons_called_tuned_have_a_grid_in_their_experiment_or_in_one_that_they_name():
    for name, (how, why) in table_gates.SETTINGS.items():
        owner = name if name in EXPERIMENTS else CLAIMS[name].promises["experiment"]
        named = [each for each in (owner, *re.findall(r"\(([a-z-]+)\)", why)) if each in EXPERIMENTS]
        modules = [sys.modules[EXPERIMENTS.module(EXPERIMENTS[each].name)] for each in named]
        assert how != "tuned" or any(GRID.search(inspect.getsource(each)) for each in modules), name


def test_what_is_said_of_a_claim_goes_before_what_is_said_of_its_experiment(monkeypatch):
    made = Experiment("e", question="Is it?", source="s", compute=table, keys=("arm", "seed"))
    made.claim("c", "It is so.").compare("accuracy", GOOD, BAD)
    made.claim("d", "It is so, too.").compare("accuracy", GOOD, BAD)
    said = {"c": (gates.BY_HAND, "no grid"), "e": ("tuned", "a grid")}
    monkeypatch.setattr(gates, "SETTINGS", said)
    found = [next(gates.declared(made.claims[name])) for name in ("c", "d")]
    assert [(each.holds, each.why) for each in found] == [
        (False, f"{gates.BY_HAND}, no grid"),
        (True, "tuned, a grid"),
    ]
