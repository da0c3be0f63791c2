"""Files that the stacks' own writers wrote here, where they are installed, are read as what was put in."""

import asyncio
import json
import re
import sys
import typing
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import typing_extensions
from support.refusals import refuses

from testbed.logs.readers import read, read_any


@pytest.mark.filterwarnings("ignore")
def test_what_verl_dumps_of_its_generations_is_read(tmp_path):
    trainer = pytest.importorskip("verl.trainer.ppo.ray_trainer").RayPPOTrainer
    for step in (1, 2):
        trainer._write_generations(
            ["1+1=", "1+1=", "2+2="], ["2", "3", "4"], ["2", "2", "4"], [1.0, 0.0, 1.0],
            {"acc": [1, 0, 1]}, tmp_path / "rollouts", step,
        )  # fmt: skip
    log = read([tmp_path / "rollouts"])
    assert log.source == "verl"
    assert [(one.step, one.reward) for one in log.sequences] == [(s, r) for s in (1, 2) for r in (1, 0, 1)]
    groups = [one.group for one in log.sequences]
    assert groups[0] == groups[1] != groups[2]
    assert len(set(groups)) == 4


@pytest.mark.filterwarnings("ignore")
def test_fields_of_a_trinity_experience_are_read(tmp_path):
    made = pytest.importorskip("trinity.common.experience")
    rng = np.random.default_rng(0)
    lines = []
    for run in range(2):
        one = made.Experience(
            eid=made.EID(batch=3, task=7, run=run), tokens=torch.arange(9) + run, prompt_length=4,
            logprobs=torch.from_numpy(-rng.random(5)), advantages=torch.full((5,), 1.0 - 2 * run),
            reward=1.0 - run, info={"model_version": 2},
        )  # fmt: skip
        tensors = {n: getattr(one, n).tolist() for n in ("tokens", "logprobs", "advantages", "action_mask")}
        lines.append(one.to_dict() | tensors)
    (tmp_path / "experiences.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    log = read([tmp_path / "experiences.jsonl"])
    assert log.source == "Trinity-RFT"
    for line, one in zip(lines, log.sequences, strict=True):
        assert (list(one.prompt), list(one.token)) == (line["tokens"][:4], line["tokens"][4:])
        np.testing.assert_allclose(one.logp_mu, line["logprobs"])
        assert one.reward == line["reward"]
    assert len({one.group for one in log.sequences}) == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_completions_and_state_of_a_run_of_trl_are_read(tmp_path):
    trl = pytest.importorskip("trl")
    from support.trl_stub import tiny_trainer

    tiny_trainer(
        trl.GRPOTrainer, tmp_path, log_completions=True, logging_strategy="steps", logging_steps=1,
        save_strategy="steps", save_steps=2,
    ).train()  # fmt: skip
    log = read([tmp_path / "completions"])
    assert log.source == "TRL"
    assert {one.step for one in log.sequences} == {1, 2}
    assert all(one.text and one.reward == int(one.reward) for one in log.sequences)
    scalars = read_any([tmp_path / "checkpoint-2" / "trainer_state.json"])
    assert [row["step"] for row in scalars.rows] == [1, 2]
    assert "reward/mean" in scalars.rows[0]


def test_lines_of_tinker_cookbooks_logger_are_read(tmp_path):
    logger = pytest.importorskip("tinker_cookbook.utils.ml_log").JsonLogger(tmp_path)
    for step in range(3):
        logger.log_metrics({"optim/kl_sample_train_v1": 0.02, "env/all/reward/total": 0.5}, step)
    log = read_any([tmp_path / "metrics.jsonl"])
    assert log.source == "tinker-cookbook"
    assert [row["step"] for row in log.rows] == [0, 1, 2]


def test_lines_of_verls_file_logger_are_read(tmp_path, monkeypatch):
    tracking = pytest.importorskip("verl.utils.tracking")
    monkeypatch.setenv("VERL_FILE_LOGGER_ROOT", str(tmp_path))
    logger = tracking.FileLogger("project", "run")
    for step in (1, 2):
        logger.log({"actor/entropy": np.float32(0.4), "actor/grad_norm": float("nan")}, step)
    logger.finish()
    log = read_any([tmp_path / "project" / "run.jsonl"])
    assert log.source == "verl"
    assert [row["step"] for row in log.rows] == [1, 2]
    assert log.rows[0]["actor/entropy"] == pytest.approx(0.4)


def test_a_trajectory_that_areal_dumps_is_read(tmp_path):
    executor = pytest.importorskip("areal.infra.workflow_executor").WorkflowExecutor
    words = SimpleNamespace(decode=lambda ids, **_: " ".join(map(str, ids)))
    mine = SimpleNamespace(_get_dump_dir=lambda _: str(tmp_path / "rollout"), _get_tokenizer=lambda: words)
    traj = {
        "input_ids": torch.tensor([[1, 2, 3, 4], [1, 2, 5, 0]]), "rewards": torch.tensor([1.0, 0.0]),
        "loss_mask": torch.tensor([[0, 0, 1, 1], [0, 0, 1, 0]]), "versions": torch.tensor([[2, 3]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]),
    }  # fmt: skip
    assert asyncio.run(executor._dump_trajectory(mine, traj, 7, False)) == (True, "")
    log = read([tmp_path / "rollout"])
    assert log.source == "AReaL"
    assert [(one.step, one.reward, one.text) for one in log.sequences] == [
        (3, 1.0, ("1 2", "3 4")), (3, 0.0, ("1 2", "5")),
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
def test_a_batch_that_skyrl_dumps_is_read_once_it_is_plain_tensors(tmp_path, monkeypatch):
    monkeypatch.setattr(typing, "TypedDict", typing_extensions.TypedDict)  # pydantic, below Python 3.12
    made = pytest.importorskip("skyrl.backends.skyrl_train.training_batch").TrainingInputBatch
    fields = {
        "sequences": torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]), "loss_mask": torch.ones(2, 2),
        "attention_mask": torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1]]), "response_mask": torch.ones(2, 2),
        "rollout_logprobs": -torch.rand(2, 2), "action_log_probs": -torch.rand(2, 2),
    }  # fmt: skip
    path = tmp_path / "global_step_3_training_input.pkl"
    made(fields).save(str(path))
    (command,) = re.findall(r'python -c "(.*?)" (\S+) (\S+)', refuses("refused", read, [path]), re.S)
    monkeypatch.setattr(sys, "argv", list(command))
    exec(command[0], {})
    log = read([path.with_suffix(".pt")])
    assert log.source == "SkyRL"
    assert [one.step for one in log.sequences] == [3, 3]
    np.testing.assert_allclose(log.sequences[1].logp_mu, fields["rollout_logprobs"][1], rtol=1e-6)
