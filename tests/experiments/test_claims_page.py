"""docs/claims.md holds every claim with its verdict; mutants are credited to the claim killing them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from mutants import run as mutants

from analysis.judging.claims import CLAIMS, run_claims
from analysis.pages.claims_page import effect, page
from testbed.cli.claims import show_claim

ROOT = Path(__file__).parents[2]
ROW = {"claim": "ess-limits-two-arm-bandit", "verdict": "supported", "statement": "a|b.", "kind": "exact"}
ROW |= {
    "effect": 1e-16,
    "low": 1e-16,
    "high": 1e-16,
    "tolerance": 1e-12,
    "n": 3,
    "arms": 1,
    "cells": 3,
    "note": "gap",
}
ROW |= {"source": "me", "runs": [], "standing": ""}


def test_the_committed_page_names_every_claim_and_its_verdict():
    text = (ROOT / "docs" / "claims.md").read_text()
    named = re.findall(r"^\| `([^`]+)` \| (\w+) \|", text, re.M)
    assert sorted(name for name, _ in named) == sorted(CLAIMS), "write it again: testbed claims page"
    promised = {name: CLAIMS[name].promises for name, _ in named}
    computed = [
        (name, v) for name, v in named if promised[name]["kind"] == "exact" and not promised[name]["table"]
    ]
    assert {v for _, v in computed} == {"supported"}, "what a computation refutes is no claim, but an error"


def test_a_claim_is_one_row_of_its_experiment_and_the_verdicts_are_counted():
    text = page(
        [ROW, {**ROW, "claim": "ess-order-max-kish-perplexity", "verdict": "refuted", "effect": 0.25}]
    )
    assert "2 claims: 1 supported, 1 refuted." in text
    about = "`envs.divergence.Divergence.ess_kish`"
    first = r"| `ess-limits-two-arm-bandit` | supported | – | a\|b. | 0 | – | 1e-12 |"
    row = f"{first} 3 | – | – | gap | {about} | me |"
    assert row in text
    assert text.count("## [weights](experiments.md#weights)") == 1
    assert "| 0.25 |" in text


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({}, "0"),
        ({"effect": -0.0123}, "-0.012"),
        ({"effect": None}, "none"),
        ({"kind": "statistical", "effect": 1.0, "low": 0.5, "high": 1.5}, "1 [0.5, 1.5]"),
        ({"kind": "statistical", "effect": 1.0, "low": None}, "1"),
    ],
)
def test_an_effect_below_rounding_is_zero_and_a_statistical_one_has_its_interval(change, shown):
    assert effect({**ROW, **change}) == shown


def test_the_page_takes_the_rows_that_the_claims_give():
    assert "`ess-limits-two-arm-bandit` | supported" in page(run_claims("ess-limits-*"))


def test_a_claim_is_shown_with_the_code_that_it_is_about(capsys):
    show_claim("ess-limits-two-arm-bandit", json=True)
    assert json.loads(capsys.readouterr().out)["about"] == "envs.divergence.Divergence.ess_kish"


# Which claim kills which mutant


def test_the_first_failure_in_a_report_is_found_with_its_parameters():
    report = (
        "FAILED tests/experiments/test_claims_exact.py::test_an_exact_claim_is_supported[k-a] - E: 1 - x\n"
        "FAILED tests/test_b.py::test_c\n"
    )
    test = mutants.first_failure(report)
    assert test == "tests/experiments/test_claims_exact.py::test_an_exact_claim_is_supported[k-a]"
    assert mutants.claim_of(test) == "k-a"
    assert mutants.first_failure("ERROR tests/test_b.py - ImportError\n") == "tests/test_b.py"
    assert mutants.first_failure("FAILED tests/test_b.py::test_c[a b - c] - no\n").startswith(
        "tests/test_b.py"
    )
    assert mutants.claim_of("tests/test_b.py::test_c[1]") == "test_c[1]"
    assert mutants.first_failure("1 failed") == "a failure without a name"


def test_the_table_lists_the_numbered_mutants_in_their_order():
    exact = "tests/experiments/test_claims_exact.py::test_an_exact_claim_is_supported"
    table = mutants.catalog({"m12-b": f"{exact}[c]", "other": "x", "m02-a": "", "m2-c": "tests/test_b.py::d"})
    assert table.splitlines()[3:] == ["| M2 | m02-a | SURVIVED |", "| M2 | m2-c | d |", "| M12 | m12-b | c |"]
    assert mutants.catalog({"other": "x"}) == ""
