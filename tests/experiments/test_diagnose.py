"""testbed diagnose: alerts at known values, the page, and the command from files to exit codes."""

import contextlib
import json
import math
import re
import sys

import numpy as np
import pandas as pd
import pytest
from support import made_logs
from support.browser import measured, with_browser
from support.command_line import refused, told
from support.log_mutations import metrics_jsonl
from test_report import Parts

from analysis.experiments.lag.phase_diagram import EARLY, SIGNS
from analysis.logs.diagnosis import diagnose
from analysis.sweeps.early_warning import early, learned
from analysis.tables.committed import MANIFEST, Table
from paper_figs.diagnosis_page import page
from testbed.diagnostics.peer_limits import PEERS, Threshold, alerts
from testbed.logs.readers import read

KL = "rollout_corr/kl_mu_pi_k1"


def rows(**values):
    return [
        {"step": float(n), **dict(zip(values, row, strict=True))}
        for n, row in enumerate(zip(*values.values(), strict=True))
    ]


def test_an_alert_says_since_when_how_often_and_how_far():
    below, above = Threshold("a", 0.5, True, "s"), Threshold("b", 0.1, False, "s")
    found = alerts(rows(a=[0.6, 0.4, 0.5, 0.3], b=[0.0, 0.1, 0.1, 0.1]), [above, below])
    assert [alert.threshold.metric for alert in found] == ["a", "b"]  # fired first
    assert (found[0].first, found[0].crossed, found[0].steps, found[0].worst) == (1, 2, 4, 0.3)
    assert not found[1].fired
    assert found[1].worst == 0.1
    assert alerts(rows(a=[math.nan]), [below]) == []


def test_an_ess_whose_floor_is_above_the_limit_cannot_warn_and_that_is_said():
    (each,) = alerts(
        [{"step": 0.0, "rollout_corr/ess_kish_sequence_clamped": 0.5, "rollout_corr/ess_floor": 0.5}],
        [t for t in PEERS if t.metric == "rollout_corr/ess_kish_sequence_clamped"],
    )
    assert not each.fired
    assert "it can never fire" in each.note


def test_every_peers_limit_is_of_a_metric_that_a_log_gives(log):
    known = diagnose(log, []).ratios
    for threshold in PEERS:
        assert threshold.metric in known
        assert re.search(r"verl, docs|Tinker's documentation|nemo_rl/", threshold.source)


def committed(folder, frame):
    table = Table.of("ess-predicts-collapse", frame)
    (folder / "ess-predicts-collapse.csv").write_bytes(table.csv)
    entry = {"file": "ess-predicts-collapse.csv", "sha256": table.sha256}
    (folder / MANIFEST).write_text(json.dumps({"tables": {"ess-predicts-collapse": entry}}))


def test_the_laboratorys_limits_come_from_the_table_that_is_there(tmp_path):
    assert learned(tmp_path)[0] == ()
    n = 60
    frame = pd.DataFrame({name: np.zeros(n) for name in SIGNS} | {"collapsed": np.arange(n) < 20})
    frame["log10 ess"] = np.where(frame["collapsed"], -2.0, -1.0)
    frame["kl"] = np.random.default_rng(0).normal(size=n)  # tells nothing
    committed(tmp_path, frame)
    (limit,), said = learned(tmp_path)
    assert (limit.metric, limit.below) == ("rollout_corr/ess_kish_sequence_raw", True)
    assert limit.limit == pytest.approx(10**-1.5)
    assert "flags 20 of 20 runs that collapsed and 0 of 40 others" in limit.source
    assert "60 runs" in said
    # Steps 1 to EARLY count: the geometric mean of 0.1 and 0.001 is 0.01.
    for ess, warned in (
        ([1.0, 0.1, 0.001], True), ([0.001, 0.1, 0.1], False), ([0.001], True),
        ([1.0, *[0.1] * (EARLY - 1), 10.0**-EARLY], True), ([1.0, *[0.1] * EARLY, 10.0**-EARLY], False),
    ):  # fmt: skip
        assert early(rows(**{limit.metric: ess}), [limit])[0].fired == warned


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    folder = tmp_path_factory.mktemp("log")
    made_logs.own(folder / "log")
    return read([folder / "log"])


@pytest.fixture(scope="module")
def text(log):
    return page(diagnose(log, ["ppo_clip", "topr"]))


@pytest.mark.slow
def test_the_page_holds_every_part_and_fetches_nothing(text):
    parts = Parts(text)
    wanted = {
        "what-was-read", "early-warnings", "effective-sample-size", "tails", "drift-over-steps", "age",
        "objectives",
    }  # fmt: skip
    assert wanted <= set(parts.ids)
    assert (parts.fetched, "script" in parts.tags, parts.tags.count("figure")) == ([], False, 2)
    assert len(parts.ids) == len(set(parts.ids))
    assert "<td>ppo_clip</td>" in text


def test_a_log_without_ratios_has_a_page_that_says_so_and_names_stay_text(tmp_path):
    made_logs.open_instruct(tmp_path / "log")
    found = diagnose(read([tmp_path / "log"]))
    assert found.ratios == {}
    assert "lack the trainer's log-probabilities" in found.notes[-1]
    found.facts["written by"] = "<script>"
    assert "<script>" not in page(found)


@pytest.mark.slow
@with_browser
@pytest.mark.parametrize(("width", "scheme"), [(400, 1), (1400, 0)])
def test_a_browser_shows_the_page_without_scrolling_sideways(text, tmp_path, width, scheme):
    assert measured(text, tmp_path, width, scheme)[0] <= 0


@pytest.mark.slow
def test_the_command_goes_from_a_log_to_summary_json_record_and_page(tmp_path, capsys):
    made_logs.prime_rl(tmp_path / "log")
    options = ("--html", tmp_path / "a.html", "--write", tmp_path / "a.parquet", "--objective", "ppo_clip")
    said = told(capsys, "diagnose", tmp_path / "log", *options)
    for words in (
        "written by", "prime-rl", "floor 1/N", "Pareto-k", "ppo_clip", "limits that peers document",
    ):  # fmt: skip
        assert words in said
    assert (tmp_path / "a.html").read_text().startswith("<!doctype html>")
    held = json.loads(told(capsys, "diagnose", tmp_path / "a.parquet", "--json", "--objective", "ppo_clip"))
    whole = diagnose(read([tmp_path / "log"]), ["ppo_clip"])
    assert held["ratios"]["rollout_corr/ess_kish_token_raw"] == pytest.approx(
        whole.ratios["rollout_corr/ess_kish_token_raw"]
    )
    assert {alert["metric"] for alert in held["peers"]} == {threshold.metric for threshold in PEERS}


@contextlib.contextmanager
def at_once(text):
    print(text, file=sys.stderr)
    yield


@pytest.mark.parametrize(
    ("words", "message"),
    [(["none.jsonl"], "does not exist"), (["x.jsonl"], "no reader knows"),
     (["x.jsonl", "--format", "nemorl"], "Unknown log format"),
     (["x.jsonl", "--format", "verl"], "x.jsonl:1 has no field 'step'. Every row of the verl format"),
     (["x.jsonl", "--open"], "--open needs a page"),
     (["log", "--objective", "ppo_clipp"], "Unknown objective"),
     (["log", "--objective", "dpo"], "None of the named objectives can be evaluated")],
)  # fmt: skip
def test_bad_input_is_one_message_and_exit_code_2(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("paper_figs.commands.diagnose.slow_notice", at_once)
    made_logs.own(tmp_path / "log")
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n')
    said = refused(capsys, "diagnose", *words)
    assert message in said
    assert ("Computing the weights" in said) == ("dpo" in words)  # where there is something to wait for


def test_a_log_of_scalars_goes_to_summary_json_and_page_and_refuses_what_needs_tokens(tmp_path, capsys):
    metrics_jsonl(tmp_path / "log")
    said = told(capsys, "diagnose", tmp_path / "log", "--html", tmp_path / "a.html")
    assert said.startswith("Healthy as far as scalars tell: the 2 limits")
    assert said.index("rollout_corr/kl") < said.index("limits that peers document were never crossed")
    assert "no tokens and so no ratios" in said
    assert {"metrics", "early-warnings"} <= set(Parts((tmp_path / "a.html").read_text()).ids)
    held = json.loads(told(capsys, "diagnose", tmp_path / "log", "--json"))
    assert held["steps"][-1] == {"step": 4.0, KL: 0.003}
    assert {row["metric"]: row["largest"] for row in held["scalars"]}[KL] == 0.003
    for words in (["--objective", "ppo_clip"], ["--write", tmp_path / "x.jsonl"], ["--model", tmp_path]):
        assert "A log of scalars holds no tokens" in refused(capsys, "diagnose", tmp_path / "log", *words)


def test_a_runs_record_is_tokens_or_refused(capsys):
    for words, message in (
        (["run", "staleness", "record=all"], "record=all is unknown; expected record=tokens"),
        (["run", "staleness", "record=tokens", "--ray"], "without --ray"),
    ):
        assert message in refused(capsys, *words)
