"""`testbed exact`, the tables behind the figures of exact gradients, and those figures."""

import json

import numpy as np
import pandas as pd
import pytest
from support.command_line import call as run_command
from support.command_line import refused

from analysis.experiments.weights import bias_variance, optimal_baseline
from analysis.judging.claims import CLAIMS
from analysis.tables.committed import load_committed
from analysis.tables.making import add_tables
from paper_figs import figure_registry, run
from testbed.exact.gradient_report import gradient_report

NAMES = ("bias-variance", "bias-split", "optimal-baseline")


def call(capsys, *words):
    return run_command(capsys, "exact", *words)


def test_it_prints_a_row_per_objective_and_what_the_tree_is(capsys):
    code, out, _ = call(capsys, "ppo_clip,ratio:sequence", "vocabulary=3", "length=2", "drift=0.5")
    assert code == 0
    assert "9 responses, 4 prefixes" in out
    assert "ppo_clip" in out
    assert "ratio:sequence" in out


def test_its_json_is_the_report(capsys):
    words = ("cispo", "vocabulary=3", "length=2", "drift=0.8", "signal=R-b", "baseline=0.25", "seed=2")
    code, out, _ = call(capsys, *words, "--json")
    found = json.loads(out)
    (row,) = found["reports"]
    from testbed.exact.response_tree import random_policies, random_tree

    tree = random_tree(3, 2, 2)
    expected = gradient_report("cispo", tree, *random_policies(tree, 0.8, 2), signal="R-b", baseline=0.25)
    assert code == 0
    assert row == pytest.approx(expected.row())
    assert row["bias_state"] + row["bias_suffix"] + row["bias_clipping"] == pytest.approx(
        row["relative_bias"]
    )
    assert found["settings"]["drift"] == 0.8
    assert found["tree"]["leaves"] == 9


def test_groups_and_end_tokens_can_be_asked_for(capsys):
    words = (
        "ratio:sequence",
        "vocabulary=3",
        "length=2",
        "end_token=2",
        "group=3",
        "advantage=leave_one_out",
    )
    code, out, _ = call(capsys, *words, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["tree"]["leaves"] == 7
    assert found["reports"][0]["size"] == 3
    assert found["reports"][0]["relative_bias"] < 1e-9


def test_it_draws_a_figure(capsys, tmp_path):
    path = tmp_path / "new" / "split.png"
    code, out, _ = call(capsys, "ppo_clip,gspo", "vocabulary=2", "length=2", "--figure", str(path))
    assert code == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    assert str(path) in out


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["ppo_clip", "length=40"], "the limit is 8,388,608 tokens"),
        (["ppo_clip", "vocabulary=1"], "needs 2 tokens"),
        (["ppo_clp"], "Did you mean 'ppo_clip'?"),
        (["ppo_clip", "drft=1"], "Unknown setting 'drft'. Did you mean 'drift'?"),
        (["ppo_clip", "drift"], "expected NAME=VALUE"),
        (["ppo_clip", "drift=far"], "drift=far: expected a number"),
        (["ppo_clip", "drift=-1"], "0 or more"),
        (["ppo_clip", "length=2.5"], "expected a whole number"),
        (["ppo_clip", "seed=-1"], "expected 0 or more"),
        (["ppo_clip", "signal=Q"], "Unknown signal 'Q'"),
        (["ppo_clip", "aggregation=sum"], "Unknown aggregation 'sum'"),
        (["ppo_clip", "end_token=9"], "end token 9 is not one of the tokens 0 to 3"),
        (["ppo_clip", "signal=R-b", "drift=1"], "give a number for b"),
        (["ppo_clip", "group=0"], "1 response or more"),
        (["ppo_clip", "--figure", "x.gif"], "ends in .png or .pdf"),
        ([","], "No objective was given"),
    ],
)
def test_a_mistake_is_answered_with_one_line(capsys, words, answer):
    assert answer in refused(capsys, "exact", *words)


def test_committed_tables_are_what_the_oracle_says_today():
    tables = load_committed(NAMES)
    fresh = optimal_baseline.optimal_baseline().frame
    pd.testing.assert_frame_equal(fresh, tables["optimal-baseline"].frame, rtol=1e-3, atol=1e-6)
    shown = tables["bias-split"].frame
    parts = shown[["bias_state", "bias_suffix", "bias_clipping"]].sum(axis=1)
    np.testing.assert_allclose(parts, shown["relative_bias"], atol=1e-4)
    benches = [bias_variance.bench(s, bias_variance.SPLIT_DRIFT) for s in range(bias_variance.TREES)]
    for name in ("ppo_clip", "minpro"):
        bias = [
            gradient_report(name, b, signal="R-b", baseline=float(b.tree.value(b.mu_SA))).relative_bias
            for b in benches
        ]
        there = shown.loc[shown["objective"] == name, "relative_bias"].item()
        assert np.mean(bias) == pytest.approx(there, rel=1e-3)
        if name == "ppo_clip":  # the same drift stands in the other table, as a median
            curve = tables["bias-variance"].frame.query("ratio == 'clipped token' and drift == 0.5")
            assert np.median(bias) == pytest.approx(curve["bias"].item(), rel=1e-3)


def test_tables_are_written_beside_the_others(tmp_path):
    made = load_committed(NAMES)
    add_tables({"bias-split": made["bias-split"]}, tmp_path)
    add_tables({"bias-variance": made["bias-variance"]}, tmp_path)
    assert sorted(load_committed(folder=tmp_path)) == ["bias-split", "bias-variance"]


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_drawn_from_the_committed_tables_and_support_claims_there_are(name):
    with run.style():
        drawn = figure_registry.draw(name, load_committed([name])[name].frame)
    assert drawn.axes
    assert set(figure_registry.FIGURES[name].promises["supports"]) <= set(CLAIMS)


def test_bars_end_at_the_bias():
    table = load_committed(["bias-split"])["bias-split"].frame
    with run.style():
        left = figure_registry.draw("bias-split", table).axes[0]
    ends = {}
    for bar in left.patches:
        y = round(bar.get_y() + bar.get_height() / 2)
        ends[y] = ends.get(y, 0.0) + bar.get_width()
    rows = table.drop(columns="objective").drop_duplicates()
    assert len(rows) == len(table) - 1, "one estimator under two names is one row"
    for row, bias in enumerate(rows["relative_bias"]):
        assert ends[len(rows) - 1 - row] == pytest.approx(bias, abs=1e-4)
