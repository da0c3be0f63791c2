"""The tiny model is really trained, and its folder is one that transformers opens by itself."""

import json

import numpy as np
import pytest
import torch
import transformers

from envs.tokens.copy_task import Copy
from envs.tokens.reasoning_gym import ReasoningGym
from envs.tokens.running_sum import RunningSum
from testbed.errors import UserError
from testbed.policies.hf.policy import HuggingFacePolicy
from testbed.policies.hf.text_task import load_tokenizer, speaks, task_for_model
from testbed.policies.hf.tiny_model import save_tokenizer, train_tiny_model

TASK = Copy(digits=3, modulus=4)
ONE_DIGIT = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}


def success(folder, task, n=512):
    """Share of right answers sampled at temperature 1; standard error at most 0.022 for n = 512."""
    policy = HuggingFacePolicy(folder, task)
    prompt_NQ = task.prompts(np.random.default_rng(99), n)
    uniform = np.random.default_rng(5).random((1, n, task.response_length))
    token_RBT, mask_RBT, _ = policy.sample(policy.initial([0]), torch.as_tensor(prompt_NQ)[None], 1, uniform)
    return task.score(prompt_NQ, token_RBT[0].numpy(), mask_RBT[0].numpy()).mean()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return train_tiny_model(tmp_path_factory.mktemp("tiny"), TASK, steps=250, width=32, noise=0.2)


@pytest.mark.slow
def test_training_reaches_what_the_noisy_teacher_shows(folder, tmp_path):
    untrained = train_tiny_model(tmp_path, TASK, steps=0, width=32)
    assert success(untrained, TASK) < 0.15
    # The teacher's own share is 0.8^3 = 0.51; six standard errors on either side.
    assert abs(success(folder, TASK) - 0.8**3) < 0.13


@pytest.mark.slow
def test_transformers_opens_the_folder_by_itself(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(str(folder), local_files_only=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    prompt = tokenizer("203=", return_tensors="pt")
    assert prompt.input_ids.tolist() == [[2, 0, 3, 4]]
    with torch.no_grad():
        answer = model.generate(**prompt, max_new_tokens=3, do_sample=False, pad_token_id=0)
    assert tokenizer.decode(answer[0, 4:]) == "203"
    assert {p.name for p in folder.iterdir()} >= {"config.json", "model.safetensors", "tokenizer.json"}
    assert not list(folder.glob("*.bin"))
    assert task_for_model(TASK, folder) is TASK


def test_the_same_arguments_give_the_same_weights_and_another_seed_others(tmp_path):
    before = torch.get_rng_state()
    small = {"steps": 3, "width": 16, "layers": 1, "sequences": 8}
    one, again = (train_tiny_model(tmp_path / name, TASK, seed=1, **small) for name in ("one", "again"))
    other = train_tiny_model(tmp_path / "other", TASK, seed=2, **small)
    assert (one / "model.safetensors").read_bytes() == (again / "model.safetensors").read_bytes()
    assert (one / "model.safetensors").read_bytes() != (other / "model.safetensors").read_bytes()
    starts = [train_tiny_model(tmp_path / f"start{s}", TASK, seed=s, **small | {"steps": 0}) for s in (1, 2)]
    assert len({(start / "model.safetensors").read_bytes() for start in starts}) == 2
    assert torch.equal(torch.get_rng_state(), before)


def test_progress_is_reported_step_by_step(tmp_path):
    seen = []
    small = {"steps": 3, "width": 16, "layers": 1, "sequences": 4}
    train_tiny_model(tmp_path, TASK, **small, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_the_default_has_about_eighty_thousand_weights(tmp_path):
    folder = train_tiny_model(tmp_path, ReasoningGym(), steps=0)
    assert 75_000 < HuggingFacePolicy(folder, ReasoningGym()).parameters < 90_000
    assert json.loads((folder / "config.json").read_text())["model_type"] == "qwen2"


def test_a_width_that_heads_do_not_divide_is_refused(tmp_path):
    with pytest.raises(UserError, match="multiple of 16"):
        train_tiny_model(tmp_path, TASK, width=40)


@pytest.mark.parametrize("task", [TASK, ReasoningGym(), RunningSum(digits=3, modulus=12)])
def test_the_tokenizer_spells_every_symbol_with_its_own_token(tmp_path, task):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    save_tokenizer(tmp_path, task)
    tokenizer = load_tokenizer(tmp_path)
    assert speaks(tokenizer, task)
    assert len(tokenizer) == task.vocabulary
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (task.end_token, task.pad_token)
    prompt_Q = task.prompts(np.random.default_rng(0), 1)[0]
    plain_Q = prompt_Q[prompt_Q != (-1 if task.pad_token is None else task.pad_token)]
    assert tokenizer(task.text(prompt_Q)).input_ids == plain_Q.tolist()
    assert tokenizer.decode(plain_Q.tolist(), clean_up_tokenization_spaces=False) == task.text(prompt_Q)


@pytest.mark.slow
def test_a_reasoning_gym_model_starts_with_room_and_reinforce_uses_it(tmp_path):
    task = ReasoningGym(dataset_args=ONE_DIGIT, prompt="{expression} =")
    folder = train_tiny_model(tmp_path, task)
    start = success(folder, task)
    assert 0.2 < start < 0.65
    policy = HuggingFacePolicy(folder, task)
    theta_RP = policy.initial([0]).requires_grad_()
    optimizer = torch.optim.Adam([theta_RP], lr=5e-4)
    draw = np.random.default_rng(0)
    for _ in range(60):
        prompt_NQ = task.prompts(draw, 16)
        prompt_RNQ = torch.as_tensor(prompt_NQ)[None]
        uniform = draw.random((1, 128, task.response_length))
        token_RBT, mask_RBT, _ = policy.sample(theta_RP.detach(), prompt_RNQ, 8, uniform)
        reward_B = task.score(np.repeat(prompt_NQ, 8, 0), token_RBT[0].numpy(), mask_RBT[0].numpy())
        reward_NG = torch.as_tensor(reward_B, dtype=torch.float32).view(16, 8)
        adv_B = (reward_NG - reward_NG.mean(1, keepdim=True)).view(1, 128, 1)
        optimizer.zero_grad()
        logp_RBT = policy.logp(theta_RP, prompt_RNQ, token_RBT, mask_RBT)
        (-(adv_B * logp_RBT).sum() / mask_RBT.sum()).backward()
        torch.nn.utils.clip_grad_norm_([theta_RP], 1.0)
        optimizer.step()
    policy.save(theta_RP.detach()[0], folder)
    assert success(folder, task) > start + 0.08
