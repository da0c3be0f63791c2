"""Claims: every one can be refuted, verdicts follow the evidence, and Holm's correction spans the family."""

import json
import math
import re

import numpy as np
import pandas as pd
import pytest

from analysis.experiment import Experiment
from analysis.experiments.lag import ess_collapse, staleness_cost
from analysis.judging import claims as base
from analysis.tables import condensed as condense
from analysis.tables import outcomes as collapse
from analysis.tables import sampled_ess as ess
from analysis.tables.committed import load_committed
from analysis.tables.making import write_tables
from envs.finite_mdp import FiniteMDP
from testbed.cli import main
from testbed.errors import UserError

SUPPORTED, REFUTED, INCONCLUSIVE = "supported", "refuted", "inconclusive"
# Every exact claim is judged in test_claims_exact.py; these three are about FiniteMDP.divergence.
DIVERGENCE_CLAIMS = [name for name in base.CLAIMS if base.CLAIMS[name].promises["experiment"] == "weights"]
N = 100


def cost_table(seeds=16, reinforce_falls=True, grpo_falls=False, cost=0.3, again=False):
    """Final accuracies of two recipes at lags 0 and 128, of a first run or its replication as well."""
    rows = [
        {
            "recipe": recipe,
            "lag": lag,
            "seed": seed,
            "accuracy": 0.9 - (cost * (1 + seed / 5000) if lag and recipe == "grpo" else 0.0),
            "collapsed": float(bool(lag) and falls),
        }
        for start in ((100, 1000) if again else (100,))
        for seed in range(start, start + seeds)
        for recipe, falls in (("reinforce", reinforce_falls), ("grpo", grpo_falls))
        for lag in (0, 128)
    ]
    return pd.DataFrame(rows)


def ess_table(seeds=6, factor=2.0, token=0.9):
    """Exact ESS from 1/N to 10/N and below; sampled = exact * factor, seeds differing a little."""
    rows = [
        {
            "recipe": "reinforce",
            "lag": 8,
            "seed": seed,
            "step": step,
            ess.EXACT: exact,
            collapse.ESS: max(exact * factor, 1 / N) * (1 + seed / 100),
            condense.TOKEN_ESS: token * (1 - seed / 100),
            collapse.ESS_FLOOR: 1 / N,
        }
        for seed in range(seeds)
        for step, exact in enumerate((0.5, 0.08, 0.05, 0.02, 0.001))
    ]
    return pd.DataFrame(rows)


MADE_UP = {"staleness-cost": cost_table(again=True), "ess-collapse": ess_table()}


@pytest.fixture
def folder(tmp_path):
    """The committed tables, two of them replaced by made-up ones."""
    made = {name: condense.Table.of(name, frame) for name, frame in MADE_UP.items()}
    write_tables({**load_committed(), **made}, tmp_path)
    return tmp_path


# Verdicts


def test_p_is_adjusted_over_all_claims_as_in_a_worked_example():
    # Sorted 0.005, 0.01, 0.03, 0.04 times 4 (1 + 1/2 + 1/3 + 1/4) over 1, 2, 3, 4, then made monotone.
    assert base.false_discovery({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}) == pytest.approx(
        {"a": 1 / 24, "b": 1 / 12, "c": 1 / 12, "d": 1 / 24}
    )
    assert base.false_discovery({"a": 0.9, "b": 0.8}) == {"a": 1.0, "b": 1.0}
    assert base.false_discovery({}) == {}


@pytest.mark.parametrize(
    ("effect", "p_adjusted", "expected"),
    [
        (0.3, 0.05, SUPPORTED),
        (-0.3, 0.01, REFUTED),
        (0.3, 0.0501, INCONCLUSIVE),
        (-0.3, 1.0, INCONCLUSIVE),
        (math.nan, 0.0, INCONCLUSIVE),
        (0.3, math.nan, INCONCLUSIVE),
    ],
)
def test_a_statistical_claim_is_decided_by_its_adjusted_p_and_then_by_its_sign(effect, p_adjusted, expected):
    assert base.verdict(base.Evidence(effect, 0, 0, 0.0, 5, ""), p_adjusted) == expected


def test_an_exact_claim_holds_within_its_tolerance_or_is_refuted():
    verdicts = [
        base.verdict(base.exact(gaps, 1e-9, ""), math.nan) for gaps in ([0, 1e-9], [0, 2e-9], [0, math.nan])
    ]
    assert verdicts == [SUPPORTED, REFUTED, REFUTED]
    assert base.exact([-3.0, 0.5], 1, "").n == 2


def test_the_t_test_gives_the_textbook_p():
    found = base.mean_above_zero([1.0, 2.0, 3.0], "")
    # t = 2 sqrt(3) with 2 degrees of freedom: p = 1 - t / sqrt(2 + t^2).
    assert found.p == pytest.approx(1 - math.sqrt(12 / 14))
    assert base.mean_above_zero([-1.0, -2.0, -3.0], "").p == pytest.approx(found.p)


@pytest.mark.parametrize("values", [[], [0.7], [0.7, 0.7, 0.7]])
def test_without_spread_between_units_nothing_is_concluded(values):
    found = base.mean_above_zero(values, "")
    assert (found.p, found.n) == (1.0, len(values))
    assert base.verdict(found, found.p) == INCONCLUSIVE


def test_mcnemar_reads_only_the_discordant_pairs():
    found = base.more_often([True] * 8 + [True], [False] * 8 + [True], "")
    assert (found.effect, found.p, found.n) == (1.0, 2 / 2**8, 9)
    assert found.low == pytest.approx(2 * 0.025 ** (1 / 8) - 1)
    assert base.more_often([False] * 8, [True] * 8, "").effect == -1.0
    assert base.more_often([True, False], [False, True], "").p == 1.0
    assert base.more_often([True, False], [True, False], "").p == 1.0


# The claims themselves


def test_every_claim_states_a_sentence_a_source_and_its_kind():
    for name in base.CLAIMS:
        entry = base.CLAIMS[name]
        assert entry.promises["statement"].endswith("."), name
        assert entry.source, name
        assert entry.promises["kind"] == "exact" or entry.promises["table"], name


@pytest.mark.parametrize("name", DIVERGENCE_CLAIMS)
def test_divergence_claims_hold(name):
    evidence = base.CLAIMS[name].function()
    assert base.verdict(evidence, math.nan) == SUPPORTED
    assert abs(evidence.effect) < 1e-9  # equal policies are among the pairs, so the bound is met


@pytest.mark.parametrize("name", DIVERGENCE_CLAIMS)
def test_divergence_claims_are_refuted_by_a_world_that_confuses_the_two_policies_or_forgets_a_step(
    name, monkeypatch
):
    right = FiniteMDP.divergence

    def wrong(self, pi, mu):
        found = right(self, pi, mu)
        object.__setattr__(found, "second_moment", np.sqrt(found.second_moment))
        object.__setattr__(found, "second_moment_prefix_T", found.second_moment_prefix_T[..., ::-1])
        object.__setattr__(found, "kl_pi_mu", 3 * found.kl_pi_mu)
        return found

    monkeypatch.setattr(FiniteMDP, "divergence", wrong)
    assert base.verdict(base.CLAIMS[name].function(), math.nan) == REFUTED


def decide(evidence):
    return base.verdict(evidence, evidence.p)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, SUPPORTED),
        ({"reinforce_falls": False, "grpo_falls": True}, REFUTED),
        ({"grpo_falls": True}, INCONCLUSIVE),
        ({"seeds": 4}, INCONCLUSIVE),
    ],
)
def test_the_collapse_claim_reaches_every_verdict(changes, expected):
    assert decide(staleness_cost.reinforce_collapses_where_grpo_holds(cost_table(**changes))) == expected


def test_the_collapse_claim_without_grpo_cells_has_no_pairs():
    table = cost_table()
    evidence = staleness_cost.reinforce_collapses_where_grpo_holds(table[table["recipe"] == "reinforce"])
    assert (evidence.n, decide(evidence)) == (0, INCONCLUSIVE)


@pytest.mark.parametrize(
    ("changes", "expected"), [({}, SUPPORTED), ({"cost": -0.05}, REFUTED), ({"cost": 0.0}, INCONCLUSIVE)]
)
def test_the_cost_of_staleness_reaches_every_verdict(changes, expected):
    assert decide(staleness_cost.staleness_costs_grpo_accuracy(cost_table(**changes))) == expected


@pytest.mark.parametrize(
    ("changes", "expected"), [({}, SUPPORTED), ({"factor": 0.5}, REFUTED), ({"seeds": 1}, INCONCLUSIVE)]
)
def test_the_overstatement_claim_reaches_every_verdict(changes, expected):
    table = ess_table(**changes)
    # Lift the floor's own effect: what is left are the rows in which the sampled ESS could be too low.
    assert decide(ess_collapse.overstates(table[table[ess.EXACT] > 0.02])) == expected


@pytest.mark.parametrize(
    ("changes", "expected"), [({}, SUPPORTED), ({"token": 0.2}, REFUTED), ({"seeds": 1}, INCONCLUSIVE)]
)
def test_the_token_claim_reaches_every_verdict(changes, expected):
    assert decide(ess_collapse.token_hides(ess_table(**changes))) == expected


def test_one_reading_below_the_floor_refutes_the_floor():
    table = ess_table()
    evidence = ess_collapse.sampled_ess_never_below_floor(table)
    assert base.verdict(evidence, math.nan) == SUPPORTED
    assert "below 1/N in 6 of 30 rows" in evidence.note
    table.loc[3, collapse.ESS] = 0.99 / N
    assert base.verdict(ess_collapse.sampled_ess_never_below_floor(table), math.nan) == REFUTED


# Running them


@pytest.fixture
def few(monkeypatch):
    """Only the claims on made-up tables: all would be judged for the correction of p."""
    found = {
        name: base.CLAIMS[name] for name in base.CLAIMS if base.CLAIMS[name].promises["table"] in MADE_UP
    }
    monkeypatch.setattr(base, "CLAIMS", found)


@pytest.mark.slow
def test_all_claims_run_into_rows_that_json_can_hold(folder, monkeypatch):
    # Exact claims without a table are computed one by one in test_claims_exact.py; a few stand for all.
    computed = [name for name in base.CLAIMS if base.CLAIMS[name].promises["table"] is None]
    judged = {name: base.CLAIMS[name] for name in base.CLAIMS if name not in computed[5:]}
    monkeypatch.setattr(base, "CLAIMS", judged)
    rows = base.run_claims(data=folder)
    assert [row["claim"] for row in rows] == sorted(judged)
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
    made_up = {name for name in judged if judged[name].promises["table"] in (None, *MADE_UP)}
    assert {row["verdict"] for row in rows if row["claim"] in made_up} == {SUPPORTED}
    assert all((row["p"] is None) == (row["kind"] == "exact") for row in rows)


@pytest.mark.usefixtures("few")
def test_looking_at_one_claim_does_not_make_it_more_significant(folder):
    statistical = [row for row in base.run_claims(data=folder) if row["kind"] == "statistical"]
    surest = min(statistical, key=lambda row: row["p"])
    (alone,) = base.run_claims(surest["claim"], folder)
    assert alone == surest
    assert alone["p_adjusted"] > alone["p"]


@pytest.mark.usefixtures("few")
def test_a_missing_table_leaves_its_claims_in_the_family(folder, tmp_path):
    whole = base.run_claims("reinforce-*", folder)[0]
    write_tables(
        {"staleness-cost": condense.Table.of("staleness-cost", cost_table(again=True))}, tmp_path / "half"
    )
    half = base.run_claims("reinforce-*", tmp_path / "half")[0]
    assert half["p_adjusted"] >= whole["p_adjusted"]


def test_claims_without_a_table_are_rows_and_no_full_stop(folder, tmp_path, monkeypatch):
    (lost,) = [name for name in base.CLAIMS if base.CLAIMS[name].promises["table"] == "ess-collapse"][:1]
    kept = "reinforce-collapses-where-grpo-holds"
    monkeypatch.setattr(base, "CLAIMS", {name: base.CLAIMS[name] for name in (kept, lost)})
    made = {"staleness-cost": condense.Table.of("staleness-cost", cost_table(again=True))}
    write_tables(made, tmp_path / "half")
    with pytest.raises(UserError, match="needs table 'ess-collapse'"):
        base.run_claims(lost, tmp_path / "half")
    rows = {row["claim"]: row for row in base.run_claims("*", tmp_path / "half")}
    assert (rows[lost]["verdict"], rows[lost]["note"]) == (base.NO_TABLE, "no table 'ess-collapse'")
    assert rows[kept]["verdict"] == SUPPORTED


def test_exact_claims_need_no_tables_at_all(tmp_path):
    assert base.run_claims("ess-limits-*", tmp_path)[0]["verdict"] == SUPPORTED


def call(*words):
    with pytest.raises(SystemExit) as stop:
        main(["claims", *words])
    return stop.value.code


@pytest.mark.slow
def test_the_command_prints_verdicts_and_names_near_misses(folder, capsys):
    assert call("run", "reinforce-*", "--data", str(folder)) == 0
    assert re.search(r"(?m)^reinforce-collapses-where-grpo-holds +supported ", capsys.readouterr().out)
    assert call("run", "reinforce-colapses-where-grpo-holds", "--data", str(folder)) == 2
    assert "Did you mean 'reinforce-collapses-where-grpo-holds'" in capsys.readouterr().err
    assert call("run", "ess-limits-*", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["n"] == 3


@pytest.mark.usefixtures("few")
def test_a_fresh_table_takes_the_place_of_the_committed_one(folder):
    fresh = {"staleness-cost": condense.Table.of("staleness-cost", cost_table(cost=-0.05, again=True))}
    (row,) = base.run_claims("staleness-costs-grpo-accuracy", folder, fresh=fresh)
    assert row["verdict"] == REFUTED
    assert [each["verdict"] for each in row["runs"]] == [REFUTED, REFUTED]
    assert row["standing"] == "pilot"


@pytest.mark.usefixtures("few")
def test_a_claim_that_came_out_once_is_not_decided(folder):
    fresh = {"staleness-cost": condense.Table.of("staleness-cost", cost_table())}
    (row,) = base.run_claims("staleness-costs-grpo-accuracy", folder, fresh=fresh)
    assert row["verdict"] == INCONCLUSIVE
    assert [each["verdict"] for each in row["runs"]] == [SUPPORTED, INCONCLUSIVE]


def test_a_claim_of_no_known_kind_is_refused():
    with pytest.raises(UserError, match="expected 'exact' or 'statistical'"):
        Experiment("x", question="Is it?", source="y").claim("z", kind="vague", statement="z.")(lambda: None)
