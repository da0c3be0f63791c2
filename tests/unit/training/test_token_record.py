"""A run's own record holds what its loss read, and changes nothing."""

from dataclasses import replace

import numpy as np
import pytest

from testbed.config.run import Run, cell_id
from testbed.logs.arrays import tensors
from testbed.logs.measure import age_rows, ratio_numbers
from testbed.logs.readers import read
from testbed.logs.record import RECORD
from testbed.training.loop import train, train_pack

TOY = Run(task="running-sum", policy="toy", recipe="grpo", lag=2, steps=5, prompts=3, group=4,
learning_rate=3e-3,
          log_every=2, evaluation_prompts=4)  # fmt: skip


@pytest.mark.slow
def test_the_record_gives_the_metrics_that_the_run_logged_and_the_run_is_the_same(tmp_path, monkeypatch):
    other = replace(TOY, recipe="m2po", seed=3)
    plain = train_pack((TOY, other))
    monkeypatch.setenv(RECORD, str(tmp_path))
    told = train_pack((TOY, other))
    for name, column in plain.items():
        np.testing.assert_array_equal(np.asarray(column), np.asarray(told[name]))
    for cell in (TOY, other):
        log = read([tmp_path / cell_id(cell)])
        assert log.steps == [0, 2, 4]
        for step in log.steps:
            row = (np.asarray(told["cell"]) == cell_id(cell)) & (np.asarray(told["step"]) == step)
            found = ratio_numbers(tensors(log.at(step)))
            for name in (
                "ess_kish_sequence_raw",
                "ess_max_token_clamped",
                "kl_mu_pi_k3",
                "log_rho_sequence_p99",
            ):
                full = f"rollout_corr/{name}"
                assert found[full] == pytest.approx(
                    float(np.asarray(told[full])[row][0]), rel=1e-4, abs=1e-7
                ), name
            rewards = np.mean([one.reward for one in log.at(step).sequences])
            assert rewards == pytest.approx(float(np.asarray(told["reward/mean"])[row][0]))
        assert [row["age"] for row in age_rows(tensors(log.at(4)))] == [2.0]
        assert {len({o.group for o in log.at(s).sequences}) for s in log.steps} == {TOY.prompts}


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.delenv(RECORD, raising=False)
    monkeypatch.chdir(tmp_path)
    train(replace(TOY, steps=1))
    assert list(tmp_path.iterdir()) == []


def test_the_records_prompts_are_those_of_their_group(tmp_path, monkeypatch):
    monkeypatch.setenv(RECORD, str(tmp_path))
    train(replace(TOY, steps=1, group=2))
    log = read([tmp_path])
    by_group = {}
    for one in log.sequences:
        by_group.setdefault(one.group, []).append(tuple(one.prompt))
    assert [len(prompts) for prompts in by_group.values()] == [2, 2, 2]
    assert all(len(set(prompts)) == 1 for prompts in by_group.values())
