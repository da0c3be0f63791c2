"""Files that the stacks' own writers wrote here, where they are installed, are read as what was put in."""

import json

import numpy as np
import pytest
import torch

from testbed.logs.readers import read


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
