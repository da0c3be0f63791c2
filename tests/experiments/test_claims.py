"""Claims: every one can be refuted, and the commands judge them on the tables that they are given."""

import json
import re

import pandas as pd
import pytest
from support.command_line import refused, told
from support.deciding import word
from support.refusals import refuses

from analysis.experiment import Experiment
from analysis.experiments.lag import ess_collapse, staleness
from analysis.judging import verdicts
from analysis.judging.claims import CLAIMS
from analysis.tables import condensed as condense
from analysis.tables import outcomes as collapse
from analysis.tables import sampled_ess as ess
from analysis.tables.committed import load_committed
from analysis.tables.making import write_tables
from testbed.errors import UserError

SUPPORTED, REFUTED, UNDECIDED = "supported", "refuted", "undecided"
COST, ESS = staleness.COST.claims, ess_collapse.EXPERIMENT.claims
N = 100


def cost_table(seeds=16, reinforce_falls=True, grpo_falls=False, cost=0.3, again=False):
    """Final accuracies of two recipes at lags 0 and 128, of a first run or its replication as well."""
    rows = [{"recipe": recipe, "lag": lag, "seed": seed,
             "accuracy": 0.9 - (cost * (1 + seed / 5000) if lag and recipe == "grpo" else 0.0),
             "collapsed": float(bool(lag) and falls)}
            for start in ((100, 1000) if again else (100,))
            for seed in range(start, start + seeds)
            for recipe, falls in (("reinforce", reinforce_falls), ("grpo", grpo_falls))
            for lag in (0, 128)]  # fmt: skip
    return pd.DataFrame(rows)


def ess_table(seeds=6, factor=2.0, token=0.9):
    """Exact ESS from 1/N to 10/N and below; sampled = exact * factor, seeds differing a little."""
    rows = [{"recipe": "reinforce", "lag": 8, "seed": seed, "step": step, ess.EXACT: exact,
             collapse.ESS: max(exact * factor, 1 / N) * (1 + seed / 100),
             condense.TOKEN_ESS: token * (1 - seed / 100), collapse.ESS_FLOOR: 1 / N}
            for seed in range(seeds)
            for step, exact in enumerate((0.5, 0.08, 0.05, 0.02, 0.001))]  # fmt: skip
    return pd.DataFrame(rows)


MADE_UP = {"staleness-cost": cost_table(again=True), "ess-collapse": ess_table()}


@pytest.fixture
def folder(tmp_path):
    """The committed tables, two of them replaced by made-up ones."""
    made = {name: condense.Table.of(name, frame) for name, frame in MADE_UP.items()}
    write_tables({**load_committed(), **made}, tmp_path)
    return tmp_path


def test_every_claim_states_a_sentence_a_source_and_its_kind():
    for name in CLAIMS:
        entry = CLAIMS[name]
        assert entry.promises["statement"].endswith("."), name
        assert entry.source, name
        assert entry.promises["kind"] != "statistical" or entry.promises["table"], name


@pytest.mark.parametrize(
    ("claim", "made", "refuting", "undecided"),
    [("reinforce-collapses-where-grpo-holds", cost_table, {"reinforce_falls": False, "grpo_falls": True},
      [{"grpo_falls": True}, {"seeds": 4}]),
     ("staleness-costs-grpo-accuracy", cost_table, {"cost": -0.05}, [{"cost": 0.0}]),
     ("sampled-ess-overstates-near-floor", ess_table, {"factor": 0.5}, [{"seeds": 1}]),
     ("token-ess-hides-collapse", ess_table, {"token": 0.2}, [{"seeds": 1}])],
)  # fmt: skip
def test_a_claim_reaches_every_verdict(claim, made, refuting, undecided):
    for changes, expected in (
        ({}, SUPPORTED), (refuting, REFUTED), *((each, UNDECIDED) for each in undecided),
    ):  # fmt: skip
        table = made(**changes)
        if "overstates" in claim:  # lift the floor's own effect: the sampled ESS could be too low elsewhere
            table = table[table[ess.EXACT] > 0.02]
        assert word({**COST, **ESS}[claim].function(table)) == expected, changes


def test_the_collapse_claim_without_grpo_cells_has_no_pairs():
    table = cost_table()
    evidence = COST["reinforce-collapses-where-grpo-holds"].function(table[table["recipe"] == "reinforce"])
    assert (evidence.n, word(evidence)) == (0, UNDECIDED)


def test_one_reading_below_the_floor_refutes_the_floor():
    table = ess_table()
    evidence = ess_collapse.sampled_ess_never_below_floor(table)
    assert word(evidence) == SUPPORTED
    assert "below 1/N in 6 of 30 rows" in evidence.note
    table.loc[3, collapse.ESS] = 0.99 / N
    assert word(ess_collapse.sampled_ess_never_below_floor(table)) == REFUTED


@pytest.mark.slow
def test_the_command_prints_verdicts_and_names_near_misses(folder, capsys):
    shown = told(capsys, "evidence", "judge", "reinforce-*", "--data", folder)
    assert re.search(
        r"(?m)^reinforce-collapses-where-grpo-holds +1 \[.*\] \(> 0.5\), n 32:  supported$", shown
    )
    near = refused(capsys, "evidence", "judge", "reinforce-colapses-where-grpo-holds", "--data", folder)
    assert "Did you mean 'reinforce-collapses-where-grpo-holds'" in near
    assert json.loads(told(capsys, "evidence", "judge", "capacity-bounds-*", "--json"))[0]["n"] == 17


# Among the committed verdicts


def test_a_claim_is_judged_on_the_table_given_among_the_verdicts_on_all_others(folder):
    name = "staleness-costs-grpo-accuracy"
    table = condense.Table.of("staleness-cost", cost_table(cost=-0.05, again=True))
    (row,) = verdicts.ask(name, folder, fresh={"staleness-cost": table})
    assert (row["verdict"], row["standing"], row["effect"] < 0) == (REFUTED, "pilot", True)
    assert verdicts.by_claim()[name]["verdict"] != REFUTED, "the committed table stays as it is"
    once = condense.Table.of("staleness-cost", cost_table())
    (row,) = verdicts.ask(name, folder, fresh={"staleness-cost": once})
    assert (row["verdict"], row["e_fresh"]) == (UNDECIDED, None)


def test_claims_without_a_table_are_rows_and_no_full_stop(tmp_path):
    made = {"staleness-cost": condense.Table.of("staleness-cost", cost_table(again=True))}
    write_tables(made, tmp_path)
    lost = next(name for name in CLAIMS if CLAIMS[name].promises["table"] == "ess-collapse")
    refuses("needs table 'ess-collapse'", verdicts.ask, lost, tmp_path)
    rows = {row["claim"]: row["verdict"] for row in verdicts.ask("*-collapse*-where-*", tmp_path)}
    assert rows["reinforce-collapses-where-grpo-holds"] == SUPPORTED


def test_a_computed_claim_needs_no_table_at_all(tmp_path):
    write_tables({"staleness-cost": condense.Table.of("staleness-cost", cost_table(again=True))}, tmp_path)
    (row,) = verdicts.ask("capacity-bounds-submissions-not-lag", tmp_path)
    assert (row["verdict"], row["kind"]) == (SUPPORTED, "enumerated")


def test_a_claim_of_no_known_kind_is_refused():
    with pytest.raises(UserError, match="expected identity, enumerated, statistical"):
        Experiment("x", question="Is it?", source="y").claim("z", kind="vague", statement="z.")(lambda: None)
