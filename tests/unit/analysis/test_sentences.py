"""Statements of an experiment: each of the four kinds asks for what it says, cell by cell."""

import numpy as np
import pandas as pd
import pytest
from support.refusals import refuses

from analysis.experiment import Experiment
from analysis.judging.comparisons import sooner
from analysis.judging.e_values import NONE, REFUTED, SUPPORTED
from tests.support import deciding

SEEDS = range(32)


def drawn():
    rng = np.random.default_rng(20_261)
    level = {("good", 1): 0.8, ("good", 8): 0.7, ("bad", 1): 0.79, ("bad", 8): 0.3}
    rows = [{"arm": arm, "lag": lag, "seed": seed, "score": mean + 0.02 * rng.normal(), "fell": mean < 0.5}
            for (arm, lag), mean in level.items() for seed in SEEDS]  # fmt: skip
    return pd.DataFrame(rows)


def experiment(computed=True):
    make = {"compute": drawn} if computed else {"cells": tuple}
    return Experiment("e", question="Is it?", source="s", keys=("arm", "lag", "seed"), **make)


GOOD, BAD = {"arm": "good"}, {"arm": "bad"}


def gains(table):
    wide = table[table["lag"] == 8].pivot(index="seed", columns="arm", values="score")
    return wide["good"] - wide["bad"]


SOONER = "share of seeds on which the first needs under "


@pytest.mark.parametrize(
    ("said", "note", "say"),
    [(SUPPORTED, "mean score at arm good, less that at arm bad at lag 8; 0.707 and 0.311",
      lambda s: s.compare("score", GOOD, BAD, by=0.2, over={"lag": 8})),
     (REFUTED, "mean score at arm bad, less that at arm good; 0 of 2 cells agree, least lag 8",
      lambda s: s.compare("score", BAD, GOOD, by=0.2, over={"lag": (1, 8)})),
     (SUPPORTED, "mean score at arm bad, less that at arm good at lag 8; 0.311 and 0.707",
      lambda s: s.compare("score", BAD, GOOD, by=-0.2, below=True, over={"lag": 8})),
     (SUPPORTED, "mean score at arm good; 2 of 2 cells agree, least lag 8",
      lambda s: s.compare("score", GOOD, by=0.6, over={"lag": (1, 8)})),
     (REFUTED, "median score at arm good, lag 8",
      lambda s: s.compare("score", GOOD, by=0.75, over={"lag": 8}, typical="median")),
     (SUPPORTED, "mean log score at arm good, less that at arm bad at lag 8; -0.347 and -1.17",
      lambda s: s.compare("score", GOOD, BAD, times=2.0, over={"lag": 8})),
     (REFUTED, "median log score at arm good, lag 8",
      lambda s: s.compare("score", GOOD, times=2.0, over={"lag": 8}, typical="median")),
     (NONE, "mean log score at arm good, less that at arm bad at lag 1; -0.22 and -0.239",
      lambda s: s.compare("score", GOOD, BAD, times=3.0, over={"lag": 1})),
     (SUPPORTED, "mean outcome at arm bad, less that at arm good at lag 8; -0.311 and -0.707",
      lambda s: s.compare(lambda t: -t["score"], BAD, GOOD, by=0.2, over={"lag": 8})),
     (SUPPORTED, "median score at arm good, less that at arm bad at lag 1; 0.804 and 0.791",
      lambda s: s.equal("score", GOOD, BAD, within=0.05, over={"lag": 1}, typical="median")),
     (REFUTED, "mean score at arm good, less that at arm bad; 1 of 2 cells agree, least lag 8",
      lambda s: s.equal("score", GOOD, BAD, within=0.05, over={"lag": (1, 8)})),
     (SUPPORTED, "share of seeds with fell at arm bad, lag 8",
      lambda s: s.happens("fell", {**BAD, "lag": 8})),
     (REFUTED, "share of seeds with fell at arm bad, lag 1", lambda s: s.happens("fell", {**BAD, "lag": 1})),
     (SUPPORTED,
      "share of discordant seeds with fell at arm bad, lag 8, not at arm good; 32 of 32 pairs differ",
      lambda s: s.happens("fell", BAD, GOOD, over={"lag": 8})),
     (SUPPORTED, "share of seeds with fell at arm bad, lag 8, not at arm good",
      lambda s: s.happens("fell", BAD, GOOD, over={"lag": 8}, alone=True)),
     (REFUTED, "share of seeds with fell at arm bad, lag 1, not at arm good",
      lambda s: s.happens("fell", BAD, GOOD, over={"lag": 1}, alone=True)),
     (SUPPORTED, f"{SOONER}1/2 of the second; median quotient 2.28; never there: 0 and 0 of 32",
      lambda s: s.happens("score", {**BAD, "lag": 8}, {**GOOD, "lag": 8}, times=2)),
     (REFUTED, f"{SOONER}1/3 of the second; median quotient 2.28; never there: 0 and 0 of 32",
      lambda s: s.happens("score", {**BAD, "lag": 8}, {**GOOD, "lag": 8}, times=3)),
     (SUPPORTED, "mean gains", lambda s: s.compare(gains, by=0.2)),
     (SUPPORTED, "mean", lambda s: s.compare(lambda t: {"lag 8": gains(t)}, by=0.7, below=True)),
     (REFUTED, "median gains", lambda s: s.compare(gains, by=0.5, null=0.5, typical="median")),
     (SUPPORTED, "mean", lambda s: s.equal(lambda t: gains(t) - 0.4, within=0.05)),
     (SUPPORTED, "share of units", lambda s: s.happens(lambda t: gains(t) > 0.2)),
     (REFUTED, "share of units", lambda s: s.happens(lambda t: gains(t) > 0.2, spared=True)),
     (SUPPORTED, "share of units gains", lambda s: s.happens(gains, spared=True)),
     (SUPPORTED, "share of seeds without fell at arm bad, lag 1",
      lambda s: s.happens("fell", {**BAD, "lag": 1}, spared=True)),
     (REFUTED, "share of seeds without fell at arm bad, lag 8",
      lambda s: s.happens("fell", BAD, over={"lag": 8}, spared=True)),
     (SUPPORTED, "mean slope of score over lag at arm bad",
      lambda s: s.trend("score", BAD, x="lag", by=0.05, below=True)),
     (REFUTED, "median slope of score over lag at arm bad",
      lambda s: s.trend("score", BAD, x="lag", by=0.01, typical="median"))],
)  # fmt: skip
def test_a_statement_is_judged_as_it_says_and_the_note_says_of_what(said, note, say):
    each = experiment()
    say(each.claim("c", "It is so."))
    found = each.claims["c"].function(drawn())
    assert (deciding.word(found), found.note) == (said, note)


NEVER = np.nan


@pytest.mark.parametrize(
    ("good", "bad", "times", "share"),
    [(64.0, NEVER, 3, 1), (NEVER, NEVER, 1, 0), (49.0, 100.0, 2, 1), (49.0, 100.0, 3, 0)],
)
def test_an_arm_is_sooner_by_a_factor_and_two_that_never_get_there_are_no_saving(good, bad, times, share):
    table = drawn().query("lag == 8").assign(needed=lambda t: t["arm"].map({"good": good, "bad": bad}))
    assert sooner("needed", GOOD, BAD, times=times)(table).effect == share


def test_two_arms_at_the_floor_are_no_evidence_of_equality():
    table = drawn().assign(score=0.0)
    each = experiment()
    each.claim("c", "Equal.").equal("score", GOOD, BAD, within=0.05, floor=0.0, over={"lag": (1, 8)})
    each.claim("d", "Equal.").equal("score", GOOD, BAD, within=0.05, over={"lag": (1, 8)})
    several = {**GOOD, "lag": (1, 8)}
    each.claim("e", "Equal.").equal("score", several, {**BAD, "lag": 1}, within=0.05, floor=0.0)
    at_floor, without, other = (each.claims[name].function(table) for name in "cde")
    assert "floor" not in other.note  # no cell is there twice
    assert at_floor.e[SUPPORTED] <= 1 < without.e[SUPPORTED]
    assert "both arms at the floor" in at_floor.note


def test_computed_tables_compare_means_and_trained_ones_medians():
    outlier = drawn()
    outlier.loc[(outlier["arm"] == "good") & (outlier["seed"] == 0), "score"] = -100.0
    found = {}
    for computed in (True, False):
        each = experiment(computed)
        each.claim("c", "Above.").compare("score", GOOD, BAD, over={"lag": 8})
        found[computed] = each.claims["c"].function(outlier).effect
    assert found[True] < 0 < found[False]


def test_a_statement_is_told_in_one_line_and_named_once():
    each = experiment()
    each.claim("c", "It is\n        so.").compare("score", GOOD, BAD)
    assert each.claims["c"].promises["statement"] == "It is so."
    refuses("already made", each.claim("c", "Again.").compare, "score", GOOD, BAD)
