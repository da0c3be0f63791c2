"""Base models from scratch: every architecture and tokenizer learns, and is saved as an ordinary folder."""

import numpy as np
import pytest
import torch
import transformers

from envs.tokens.running_sum import RunningSum
from testbed.cli import main
from testbed.errors import UserError
from testbed.policies.hf.policy import HuggingFacePolicy
from testbed.policies.hf.text_task import TextTask, task_for_model
from testbed.policies.hf.tiny_model import Lesson, teaching_loss, train_base

TASK = RunningSum(digits=2, modulus=4)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["gpt-neox", "gemma"])  # the others are trained elsewhere
def test_every_architecture_learns_its_task_and_opens_as_its_own_class(architecture, tmp_path):
    train_base(tmp_path, TASK, architecture, width=32, layers=1, lesson=Lesson(60, 0.0, 32, 1e-2))
    kind = type(transformers.AutoModelForCausalLM.from_pretrained(str(tmp_path))).__name__.lower()
    assert kind.startswith(architecture.replace("-", ""))
    policy = HuggingFacePolicy(tmp_path, TASK)
    prompt_RNQ = torch.as_tensor(TASK.prompts(np.random.default_rng(9), 48))[None]
    token_RBT, mask_RBT, _ = policy.sample(
        policy.initial([0]), prompt_RNQ, 1, np.zeros((1, 48, 2)), greedy=True
    )
    score_N = TASK.score(prompt_RNQ[0].numpy(), token_RBT[0].numpy(), mask_RBT[0].numpy())
    assert score_N.mean() > 0.3  # 1/16 without having learned


@pytest.mark.slow
def test_a_bpe_tokenizer_learns_from_the_task_and_reads_it_back(tmp_path):
    train_base(tmp_path, TASK, "llama", "bpe", width=32, layers=1, vocabulary=270, lesson=Lesson(0))
    task = task_for_model(TASK, tmp_path)
    assert isinstance(task, TextTask)
    assert 258 < task.vocabulary <= 270
    policy = HuggingFacePolicy(tmp_path, task)
    before = float(teaching_loss(policy, policy.initial([0]), task, 32, 0.0, 0, 99))
    train_base(
        tmp_path, TASK, "llama", "bpe", width=32, layers=1, vocabulary=270, lesson=Lesson(20, 0.0, 16, 1e-2)
    )
    policy = HuggingFacePolicy(tmp_path, task)
    after = float(teaching_loss(policy, policy.initial([0]), task, 32, 0.0, 0, 99))
    assert after < 0.6 * before


def test_what_cannot_be_trained_is_refused(tmp_path):
    for arguments, says in [
        ({"architecture": "qwen"}, "Unknown architecture 'qwen'. Did you mean 'qwen2'"),
        ({"tokenizer": "word"}, "Unknown tokenizer 'word'"),
        ({"width": 40}, "width must be a positive multiple of 16"),
        ({"tokenizer": "bpe", "vocabulary": 100}, "needs at least 258 tokens"),
    ]:
        with pytest.raises(UserError, match=says):
            train_base(tmp_path / "new", TASK, lesson=Lesson(0), **arguments)
    with pytest.raises(UserError, match="learning_rate 0"):
        Lesson(learning_rate=0.0)


def test_the_command_trains_says_how_well_and_never_writes_over_a_model(tmp_path, capsys):
    words = [
        "pretrained",
        "scratch",
        str(tmp_path / "base"),
        "--task",
        "running-sum",
        "--steps",
        "2",
        "--width",
        "16",
    ]
    with pytest.raises(SystemExit) as end:
        main([*words, "--layers", "1", "--json", "digits=2", "modulus=4"])
    assert end.value.code == 0
    printed = capsys.readouterr().out
    assert '"accuracy"' in printed
    assert '"weights"' in printed
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert "is not empty" in capsys.readouterr().err
