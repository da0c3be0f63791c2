"""Metrics: each has one definition, aliases belong to them, and the page says what the code says."""

import json
from pathlib import Path

import numpy as np
import pytest

from testbed.cli import main
from testbed.diagnostics.metric_aliases import ALIASES, page, rows
from testbed.diagnostics.metric_names import METRICS, ON_REQUEST
from testbed.diagnostics.tails import Flat, pareto_k, tail_metrics
from testbed.diagnostics.weight_sums import WeightSums

ROOT = Path(__file__).parents[3]
LOG_W = np.random.default_rng(0).normal(0, 1, 500)


def output(capsys, *words) -> str:
    with pytest.raises(SystemExit) as done:
        main(words)
    assert done.value.code == 0
    return capsys.readouterr().out


def test_aliases_belong_to_metrics_and_no_stack_has_one_key_for_two_of_them_unremarked():
    assert set(ALIASES) <= set(METRICS)
    plain = [(a.stack, a.key) for aliases in ALIASES.values() for a in aliases if not a.differs]
    assert len(plain) == len(set(plain))


def test_sums_and_tails_name_what_they_return():
    known = {**METRICS, **ON_REQUEST}
    for level in ("token", "prefix", "sequence"):
        for which in ("raw", "clamped"):
            assert set(WeightSums.of(LOG_W).metrics(level, which)) <= set(known)
        assert set(tail_metrics(LOG_W, level)) <= set(known)
    assert isinstance(pareto_k(np.zeros(500)), Flat)
    assert tail_metrics(np.zeros(500), "sequence") == {}
    mostly_zero = np.where(np.arange(500) < 480, -np.inf, LOG_W)
    assert np.isfinite(list(tail_metrics(mostly_zero, "token").values())).all()


def test_a_number_on_request_is_that_of_the_batch_where_both_exist():
    sums = WeightSums.of(LOG_W).metrics("sequence")
    assert sums["rollout_corr/ess_floor"] == 1 / 500
    assert sums["rollout_corr/ess_kish_sequence_raw"] == WeightSums.of(LOG_W).ess("kish")
    for call in (lambda: WeightSums.of(LOG_W).metrics("turn"), lambda: tail_metrics(LOG_W, "turn")):
        with pytest.raises(ValueError, match="Unknown level 'turn'"):
            call()
    with pytest.raises(ValueError, match="Unknown kind of weights 'clipped'"):
        WeightSums.of(LOG_W).metrics("token", "clipped")


def test_the_page_is_what_the_code_says(capsys, tmp_path):
    again = "not what the code says; run: testbed evidence pages metrics"
    assert (ROOT / "docs" / "metrics.md").read_text() == page(), again
    output(capsys, "evidence", "pages", "metrics", "--docs", str(tmp_path / "new"))
    assert (tmp_path / "new" / "metrics.md").read_text() == page()


def test_the_command_finds_metrics_by_our_name_and_by_another_stacks(capsys):
    found = json.loads(output(capsys, "list", "metrics", "*k3_kl*", "--json"))
    assert [row["name"] for row in found] == ["rollout_corr/kl_mu_pi_k3"]
    assert len(json.loads(output(capsys, "list", "metrics", "--json"))) == len(rows())
    assert "exp(entropy" in output(capsys, "list", "metrics", "rollout_corr/ess_perplexity_token_raw")


def test_an_unknown_metric_is_an_error_with_a_suggestion(capsys):
    with pytest.raises(SystemExit) as done:
        main(["list", "metrics", "rollout_corr/chi2_tokens"])
    assert done.value.code == 2
    assert "Did you mean 'rollout_corr/chi2_token'?" in capsys.readouterr().err
