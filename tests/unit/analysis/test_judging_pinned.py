"""Evidence, words, gates and tables of small made-up worlds, compared whole."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from support.command_line import call
from support.made_sweep import CELLS, STEPS, accuracy, made
from support.pins import outcome, pinned

from analysis.commands import kinds
from analysis.judging import (
    auroc,
    bets,
    comparisons,
    e_values,
    needed,
    replication,
    rule,
    seed_intervals,
    seed_power,
    table_gates,
)  # fmt: skip
from analysis.judging.comparison import Comparison
from analysis.judging.comparisons import reading
from analysis.judging.e_values import MEAN, MEDIAN, SHARE, Evidence
from analysis.pages import experiment_page, systems_page
from analysis.pages.markdown import table as markdown
from analysis.tables import cell_table, condensed, outcomes, sampled_ess, tails, value_table, wall_clock
from analysis.tables.committed import load_results


def drawn():
    """Return a table of three arms at two lags: ties, an event, seeds of two runs."""
    draw, rows = np.random.default_rng(11), []
    for (a, arm), lag, seed in itertools.product(enumerate(("good", "bad", "off")), (1, 8), range(12)):
        score = round(0.9 - 0.12 * a - 0.02 * lag * a + 0.05 * draw.normal(), 2)
        rows.append({"arm": arm, "lag": lag, "seed": seed, "score": score, "fell": score < 0.6,
        "steps": 10.0 + seed % 3 * a,
                     "run": "first" if seed < 6 else "replication"})  # fmt: skip
    return pd.DataFrame(rows)


UNITS = {
    "gains": np.array([0.2, 0.31, -0.05, 0.2, 0.12, 0.4, 0.22, 0.0, 0.18, 0.25, 0.3, 0.09]),
    "one": np.array([0.3]),
    "tied": np.array([0.1, 0.1, 0.1, 0.0, 0.0, 0.1]), "lost": np.array([0.1, np.nan, 0.3]),
    "level": np.linspace(-1, 1, 40),
    "none": np.array([]), "all": np.full(30, 0.5),
}  # fmt: skip


@pytest.mark.parametrize("name", UNITS)
def test_bets_and_intervals_are_as_before(name):
    x = UNITS[name]
    found = {
        "bets": [outcome(ask, x, t) for ask in (bets.median, bets.mean) for t in (-0.1, 0.0, 0.1, 0.2)],
        "sequence": [outcome(bets.median_sequence, x, level) for level in (0.05, 0.2)],
        "shares": [outcome(bets.share_sequence, x > t, 0.1, 50) for t in (0.0, 0.15)],
        "intervals": [outcome(ask, x, level) for ask in (seed_intervals.median_interval,
        seed_intervals.student_interval)
                      for level in (0.5, 0.95)],
    }  # fmt: skip
    groups = {"a": x, "b": x[::2] + 0.1}
    for measure, margin in itertools.product((MEDIAN, MEAN, SHARE), (-0.1, 0.1, 0.25)):
        given = (
            {key: (each > 0).astype(float) for key, each in groups.items()} if measure is SHARE else groups
        )
        for way, ask in {
            "exceeds": e_values.exceeds,
            "below": e_values.stays_below,
            "within": e_values.within,
        }.items():
            found[f"{way} {measure.name if hasattr(measure, 'name') else ''} {margin}"] = outcome(
                ask, given, margin, "n", measure
            )
    pinned("judging", f"units {name}", found)


def test_counts_have_the_intervals_and_bets_they_had():
    pairs = [(0, 0), (0, 4), (3, 4), (9, 9), (7, 30), (30, 30)]
    found = {
        "wilson": [outcome(seed_intervals.wilson_interval, k, n, level) for k, n in pairs for level in (0.8,
        0.95)],
        "exact": [outcome(seed_intervals.clopper_pearson_interval, k, n) for k, n in pairs],
        "shares": [bets.shares(k, n - k, chance) for k, n in pairs for chance in (0.5, 0.2)],
        "statistic": [bets.at_statistic(t, n) for t in (-2.0, 0.0, 0.4, 1.0, 3.0) for n in (2, 9, 40)],
        "agreeing": [seed_power.agreeing(gap, spread) for gap in (0.0, 0.1, -0.2) for spread in (0.1, 1.0)],
        "auroc": [auroc.auroc([0.1, 0.4, 0.4, 0.9, np.nan], [0, 0, 1, 1, 1]), auroc.kendall([1, 2, 2, 5], [1,
        3, 2, 2])],
        "threshold": [rule.threshold(e, m, a) for e in ([], [3, 40, 900.0], [25.0] * 9) for m in (1,
        9) for a in (0.05, 0.1)],
        "shown": comparisons.shown({"a": UNITS["gains"], ("b", 1): UNITS["tied"]}, 2),
        "short": [comparisons.short_of(0.2, 0.5), comparisons.short_of(0.7, 0.5)],
        "floor": [comparisons.at_floor([[0.0, 0.01], [0.0, c]], 0.05, f) for c in (0.0, 0.5) for f in (0.0,
        0.4)],
    }  # fmt: skip
    pinned("judging", "counts", found)


GOOD, BAD, OFF = {"arm": "good"}, {"arm": "bad"}, {"arm": "off"}
ASKED = {
    "above": Comparison("above", "score", GOOD, BAD, 0.05, {"lag": (1, 8)}), "level": Comparison("above",
    "score", GOOD, margin=0.7),
    "below": Comparison("below", "score", BAD, GOOD, 0.02, {"lag": 8}, "mean"), "floor": Comparison("equal",
    "score", BAD, OFF, 0.2, {"lag": 8}, floor=0.5),
    "equal": Comparison("equal", "score", GOOD, BAD, 0.1, {"lag": (1, 8)}), "log": Comparison("above",
    "score", GOOD, OFF, 0.2, {"lag": 8}, log=True),
    "happens": Comparison("happens", "fell", OFF, over={"lag": 8}), "spared": Comparison("spared", "fell",
    GOOD, over={"lag": 8}),
    "alone": Comparison("alone", "fell", OFF, GOOD, over={"lag": 8}), "sooner": Comparison("sooner", "steps",
    GOOD, BAD, 1.0, {"lag": 8}),
    "slope": Comparison("below", "score", OFF, margin=-0.01, x="lag"), "computed": Comparison("above",
    lambda t: t["score"] * 2, GOOD, BAD, 0.1, {"lag": 8}),
    "null": Comparison("above", "score", GOOD, BAD, 0.05, {"lag": 8}, null=0.01),
    "absent": Comparison("above", "score", {"arm": "gone"}, BAD),
    "rivals": Comparison("above", "score", GOOD, BAD, 0.05, {"lag": 8}, off=OFF, rival=OFF),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_a_sentence_finds_gates_and_earns_words_as_before(name):
    table, check = drawn(), ASKED[name]
    parts = [part for _, part in table.groupby("run")]
    with reading() as read:
        evidence = outcome(check, table)
    if isinstance(evidence, str):
        pinned("judging", f"sentence {name}", evidence)
        return
    both = replace(evidence, runs=tuple(check(part) for part in parts))
    found = {
        "evidence": both, "gates": outcome(table_gates.answers, check, table, read, both),
        "leaning": table_gates.leaning(both),
        "word": [rule.leaning(each) for each in (evidence, both)],
        "half": [rule.half(each) for each in (evidence, both)],
        "strongest": rule.strongest(both), "read": [[each[0], each[1], each[2]] for each in map(tuple, read)],
        "verdict": [rule.verdict(at, rule.leaning(both), rule.half(both)) for at in (1.5, 20.0, 1e6)],
    }  # fmt: skip
    pinned("judging", f"sentence {name}", found)


def test_arms_of_a_table_are_read_as_before():
    table = drawn()
    first, several = {"arm": "good", "lag": 8}, {"arm": ["good", "bad"], "lag": (1, 8)}
    found = {
        "arm": comparisons.arm(table, "score", first), "paired": comparisons.paired(table, "score", first,
        {"arm": "bad", "lag": 8}),
        "arms": comparisons.arms(table, "score", {"a": first, "b": {"arm": "off", "lag": 1}}),
        "places": comparisons.places(table, {"lag": 8, "seed": 3}), "level": replication.level(table,
        "score", several),
        "difference": outcome(replication.difference, table, "score", {"arm": ["good", "bad"]}, OFF, lag=(1,
        8)),
        "slopes": replication.slopes(table, "lag", "score", {"arm": ["good", "off"]}),
        "merged": replication.merged(a={"x": [1.0]}, b={"x": [2.0], "y": [3.0]}),
        "runs": replication.runs_of(table),
        "mostly": comparisons.happens_mostly([True] * 9 + [False], "n"),
        "more often": comparisons.happens_more_often(pd.Series([1.0, 1, 0, 1, 1, 1]), pd.Series([0.0, 0, 0,
        0, 1, 0]), "n"),
        "within": comparisons.median_within({"a": UNITS["gains"], "b": UNITS["tied"]}, 0.3, "n"),
        "missing": [outcome(comparisons.arm, table, "score", where) for where in ({"arm": "x"}, {"gone": 1},
        {"arm": "good"})],
        "exact": [e_values.exact(gaps, 0.1, "n") for gaps in ([0.05, 0.1], [0.2], [np.nan, 0.0])],
        "rows": [rule.leaning(Evidence(0.1, 0, 1, 9, "n", e=e)) for e in
                 ({"no difference": 50.0, "smaller than claimed": 19.0}, {"no difference": 50.0,
                 "smaller than claimed": 21.0}, {})],
        "eligible": [rule.leaning(Evidence(0.1, 0, 1, 9, "n", e={"no difference": 50.0,
        "smaller than claimed": 3e4},
                     runs=(Evidence(0, 0, 0, 1, ""), Evidence(0, 0, 0, 1, "", e={"no difference": 2.0,
                     "smaller than claimed": x}))))
                     for x in (0.5, 3.0)],
    }  # fmt: skip
    pinned("judging", "arms", found)


def rows():
    """Return rows of verdicts: open and decided, near and far, with and without intervals."""
    base = {
        "experiment": "e", "claim": "c", "systems": "", "kind": "toy training", "verdict": "undecided",
        "effect": 0.06, "low": -0.02,
        "high": 0.14, "asks": "> 0.05", "leans": "supported", "e_first": 3.0, "e_fresh": 1.5, "e": 4.5,
        "half": "", "e_half": 0.0,
        "n": 24.0, "cells": 2.0, "agree": 1.0, "tolerance": None, "gates": "",
        "checked": "drift: not recorded", "standing": "pre-set",
        "note": "mean x; 3 of 24 pairs differ", "statement": "It gains."}  # fmt: skip
    changes = (
        {}, {"verdict": "supported"}, {"effect": 0.0501}, {"effect": 0.2, "low": 0.15, "high": 0.25},
        {"effect": None, "low": None, "high": None},
        {"n": 1.0}, {"low": -np.inf}, {"asks": "< -0.1", "effect": -0.2, "low": -0.31, "high": -0.09},
        {"asks": "within 0.1"}, {"e": 0.0},
        {"verdict": "direction only", "effect": 0.03, "low": 0.01, "high": 0.05}, {"e_fresh": 0.0},
        {"kind": "identity", "effect": 1e-9}, {"cells": 1.0},
        {"verdict": "not run", "note": "not yet"}, {"kind": "enumerated", "effect": 0.25}, {"low": -0.02,
        "high": 0.3}, {"gates": "acts: no"},
    )  # fmt: skip
    return [{**base, **change} for change in changes]


def test_rows_of_verdicts_are_worded_as_before():
    found = [
        [outcome(say, row) for say in (needed.units_to_decide, needed.decides_already, needed.why_not,
        experiment_page.effect,
                                       systems_page.needs, kinds.in_words, kinds._bets, kinds._said,
                                       table_gates.excuse)]
        for row in rows()
    ]  # fmt: skip
    pinned("judging", "rows", found)
    line = {
        "n": 3,
        "name": "S|x",
        "says": "a | b",
        "status": "decided",
        "without": "nothing yet",
        "world": "",
        "central": [],
    }
    central = [{**row, "effect": "0.1", "needs": row["asks"] * (row["n"] < 2)} for row in rows()[:6]]
    lines = [
        outcome(systems_page._line, {**line, **change}, link)
        for change, link in itertools.product(
            ({}, {"central": central}, {"without": "", "world": "toy"}), ("", "{n}.md")
        )
    ]
    pinned("judging", "lines", lines)
    pinned("judging", "markdown", markdown(["a", "b|"], [["1", "x|y"], ["2", ""]]))


def test_tables_of_a_sweep_are_as_before(tmp_path):
    def curve(run):
        lost = (run.recipe == "grpo") & (run.lag == 64) & (STEPS >= 70)
        return np.where(lost & (run.seed == 2), np.nan, accuracy(run) - 0.07 * run.seed * (STEPS == 40))

    frame = load_results(made(tmp_path / "s", CELLS, curve))
    keys, metrics = (
        ("recipe", "lag", "seed"),
        ("reward/mean", "mean reward/mean", "min accuracy", "rise accuracy", "best", "collapsed"),
    )
    pooled = outcome(tails.pool, frame)
    found = {
        "summary": outcomes.summary_table(frame), "narrow": outcomes.summary_table(frame, level=0.5),
        "cells": outcomes.cells(frame),
        "table": outcome(lambda: cell_table.cell_table("x", frame, keys, metrics).frame()),
        "fields": outcomes.cell_fields(frame), "smooth": [outcomes.smooth(np.arange(7.0) ** 2,
        w) for w in (1, 3)],
        "condensed": outcome(lambda: {name: each.frame().tail(4) for name, each in condensed.condense(frame,
        9).items()}),
        "pooled": pooled if isinstance(pooled, str) else {"rows": len(pooled),
        "exceed": outcome(tails.exceedances, pooled, ["recipe", "lag"])},
        "deepest": outcome(sampled_ess.deepest, frame), "over": outcome(sampled_ess.overstatement, frame),
        "values": outcome(value_table.value_table, frame), "clock": outcome(wall_clock.wall_clock, frame),
        "need": outcome(outcomes.need, frame, ["x"]),
        "reached": [outcomes.reached(part, t) for _, part in frame.groupby("cell") for t in (0.3, 0.8)],
        "exceedance": tails.exceedance([[0, 2, 1], [4, 0, 0]]),
    }  # fmt: skip
    pinned("judging", "sweep", found)


@pytest.mark.parametrize("words", ["", "--json", "--by recipe", "--by recipe --baseline grpo --json",
    "--by lag --baseline 0",
                                   "--by gone", "--gap 0.1 --by recipe --baseline grpo",
                                   "--level 0.5"])  # fmt: skip
def test_commands_on_a_sweep_say_what_they_said(words, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    folder = made(tmp_path / "s")
    for command in ("compare", "power"):
        pinned("judging", f"{command} {words}", call(capsys, command, folder, *words.split()))


@pytest.mark.parametrize("words", ["--gap 1 --spread 1 --cap 32", "--gap 0.05 --spread 0.1",
    "--gap 0.5 --spread 1 --json", "--gap -1",
                                   "--gap 0.3 --spread 0.4 --cap 64 --json", ""])  # fmt: skip
def test_power_says_what_it_said(words, capsys):
    pinned("judging", f"seeds for {words or 'nothing'}", call(capsys, "power", *words.split()))
