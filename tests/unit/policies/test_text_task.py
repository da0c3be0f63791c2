"""Token tasks as text: a model's own tokenizer reads the prompts, and its decoded answers are scored."""

import numpy as np
import pytest
import torch
import transformers
from support import tiny_models
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from envs.tokens.reasoning_gym import ReasoningGym
from envs.tokens.running_sum import RunningSum
from testbed.errors import UserError
from testbed.policies.hf.policy import HuggingFacePolicy
from testbed.policies.hf.text_task import TextTask, load_tokenizer, speaks, task_for_model
from testbed.policies.hf.tiny_model import save_tokenizer

CORPUS = ["12 + 34 =\nAnswer: 46\n", "Answer: -7", "00 11 22 33 44 55 66 77 88 99 10 20 30"] * 20


def byte_level(begin: bool = False) -> transformers.PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer as GPT-2 and Qwen have; it merges, so tokens are not characters."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    names = {"eos_token": "<|endoftext|>"} | ({"bos_token": "<|endoftext|>"} if begin else {})
    if begin:
        from tokenizers.processors import TemplateProcessing

        tokenizer.post_processor = TemplateProcessing(
            single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
        )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


@pytest.fixture(scope="module")
def tokenizer():
    return byte_level()


@pytest.fixture(scope="module")
def sums():
    return ReasoningGym()


def rows(task, *texts, ended=True):
    """Responses spelled by the tokenizer, as token and mask rows."""
    token_NT = np.zeros((len(texts), task.response_length), dtype=np.int64)
    mask_NT = np.zeros(token_NT.shape, dtype=bool)
    for n, text in enumerate(texts):
        tokens = task.tokenizer(text).input_ids + ([task.end_token] if ended else [])
        token_NT[n, : len(tokens)], mask_NT[n, : len(tokens)] = tokens, True
    return token_NT, mask_NT


def test_prompts_are_the_filled_template_and_deterministic(tokenizer, sums):
    task = TextTask(sums, tokenizer, template="Q: {prompt}\nA:")
    given_NQ = sums.prompts(np.random.default_rng(0), 8)
    prompt_NQ = task.prompts(np.random.default_rng(0), 8)
    assert prompt_NQ.shape == (8, task.prompt_length)
    for given_Q, prompt_Q in zip(given_NQ, prompt_NQ, strict=True):
        assert task.text(prompt_Q) == f"Q: {sums.text(given_Q)}\nA:"
        inside = prompt_Q != task.pad_token
        assert inside[np.argmax(inside) :].all()
    assert max(len(task.tokenizer(task.text(p)).input_ids) for p in prompt_NQ) < len("Q: 12 + 34 =\nA:")


@pytest.mark.parametrize("inner", [ReasoningGym(), RunningSum(digits=4), RunningSum(digits=4, modulus=12)])
def test_the_noiseless_teacher_scores_one_and_its_prompts_come_back(tokenizer, inner):
    task = TextTask(inner, tokenizer, response_length=24)
    prompt_NQ = task.prompts(np.random.default_rng(1), 32)
    answer = task.teacher(prompt_NQ, np.random.default_rng(2), 0.0)
    assert (task.score(prompt_NQ, *answer) == 1.0).all()
    assert (task._originals(prompt_NQ) == inner.prompts(np.random.default_rng(1), 32)).all()
    noisy = task.teacher(prompt_NQ, np.random.default_rng(2), 1.0)
    assert (task.score(prompt_NQ, *noisy) == 0.0).all()


def test_score_is_that_of_the_decoded_text(tokenizer, sums):
    task = TextTask(sums, tokenizer, response_length=24)
    prompt_NQ = task.prompts(np.random.default_rng(3), 1)
    answer = sums.text(
        *(x[0] for x in sums.teacher(task._originals(prompt_NQ), np.random.default_rng(0), 0.0))
    )
    answer = answer.removesuffix("<end>")
    ended = {f"x{answer}": 0, "": 0, answer: 1, f" {answer}": 1, f"\n {answer} ": 1, f"{answer}\nand more": 1}
    ended |= {
        f"{answer}0": 0,
        f"{answer} or not": 0,
        f"{answer}<|endoftext|>": 0,
        "123456789": 0,
    }
    token_NT, mask_NT = rows(task, *ended)
    reward_N = task.score(np.repeat(prompt_NQ, len(ended), 0), token_NT, mask_NT)
    assert dict(zip(ended, reward_N, strict=True)) == ended
    # Without an end token only a line break finishes an answer.
    token_NT, mask_NT = rows(task, answer, f"{answer}\n", ended=False)
    assert task.score(np.repeat(prompt_NQ, 2, 0), token_NT, mask_NT).tolist() == [0.0, 1.0]


def test_blanks_around_an_answer_do_not_count(tokenizer):
    inner = RunningSum(digits=2, modulus=4)
    task = TextTask(inner, tokenizer, template="{prompt}")
    prompt_NQ = np.repeat(task.prompts(np.random.default_rng(0), 1), 4, 0)
    first, second = (str(v) for v in inner.answer(task._originals(prompt_NQ)[:1, :2])[0])
    texts = (f"{first}{second}", f" {first}{second} ", f"\n{first}{second} \n", f"{first} {second}")
    assert task.score(prompt_NQ, *rows(task, *texts)).tolist() == [1.0, 1.0, 1.0, 0.0]


def test_a_prompt_that_starts_with_the_end_token_does_not_count_as_padding(sums):
    task = TextTask(sums, byte_level(begin=True))
    assert task.end_token == 0
    assert task.pad_token != 0
    prompt_Q = task.prompts(np.random.default_rng(0), 1)[0]
    assert prompt_Q[np.argmax(prompt_Q != task.pad_token)] == 0
    assert (task._originals(prompt_Q[None]) == sums.prompts(np.random.default_rng(0), 1)).all()


def test_a_tokenizer_that_changes_prompts_is_refused(sums):
    lossy = byte_level()
    lossy.backend_tokenizer.normalizer = normalizers.Replace("+", "-")
    with pytest.raises(UserError, match="so prompts cannot be told apart"):
        TextTask(sums, lossy)


def test_bad_templates_and_foreign_prompts_are_refused(tokenizer, sums):
    with pytest.raises(UserError, match="template must hold"):
        TextTask(sums, tokenizer, template="Answer:")
    task = TextTask(sums, tokenizer)
    prompt_NQ = np.full((1, task.prompt_length), task.tokenizer("z").input_ids[0])
    with pytest.raises(UserError, match="is not one of this task's prompts"):
        task.score(prompt_NQ, *rows(task, "1"))
    short = TextTask(sums, tokenizer, response_length=1)
    prompt_NQ = short.prompts(np.random.default_rng(0), 1)
    with pytest.raises(UserError, match="raise response_length, now 1"):
        short.teacher(prompt_NQ, np.random.default_rng(0), 0.0)


def test_a_user_model_with_its_own_tokenizer_learns_the_task_as_text(tokenizer, sums, tmp_path):
    config = transformers.Qwen3Config(
        **{**tiny_models.SHAPE, "vocab_size": 320, "max_position_embeddings": 64}
    )
    folder = tiny_models.write_model(tmp_path / "model", config)
    tokenizer.save_pretrained(str(folder))
    task = task_for_model(sums, folder)
    assert isinstance(task, TextTask)
    assert task.vocabulary == len(tokenizer) < 320
    policy = HuggingFacePolicy(folder, task)
    theta_RP = policy.initial([0]).requires_grad_()
    prompt_NQ = task.prompts(np.random.default_rng(0), 3)
    prompt_RNQ = torch.as_tensor(prompt_NQ)[None]
    uniform = np.random.default_rng(0).random((1, 6, task.response_length))
    token_RBT, mask_RBT, logp_RBT = policy.sample(theta_RP, prompt_RNQ, 2, uniform)
    assert (policy.logp(theta_RP, prompt_RNQ, token_RBT, mask_RBT) - logp_RBT).abs().max() < 2e-5
    reward_B = task.score(np.repeat(prompt_NQ, 2, 0), token_RBT[0].numpy(), mask_RBT[0].numpy())
    assert reward_B.shape == (6,)
    assert token_RBT.max() < task.vocabulary

    token_NT, mask_NT = (
        torch.as_tensor(x)[None] for x in task.teacher(prompt_NQ, np.random.default_rng(0), 0.0)
    )
    optimizer = torch.optim.Adam([theta_RP], lr=3e-3)
    for _ in range(30):
        optimizer.zero_grad()
        (-policy.logp(theta_RP, prompt_RNQ, token_NT, mask_NT).sum()).backward()
        optimizer.step()
    token_RBT, mask_RBT, _ = policy.sample(theta_RP, prompt_RNQ, 2, np.full_like(uniform, 0.5))
    assert task.score(np.repeat(prompt_NQ, 2, 0), token_RBT[0].numpy(), mask_RBT[0].numpy()).mean() == 1.0


def test_a_model_that_speaks_the_task_gets_the_task_itself(sums, tokenizer, tmp_path):
    folder = tiny_models.write_model(tmp_path / "model", tiny_models.CONFIGS["llama"]())
    assert load_tokenizer(folder) is None
    assert task_for_model(sums, folder) is sums
    save_tokenizer(folder, sums)
    assert task_for_model(sums, folder) is sums
    assert not speaks(tokenizer, sums)
    other = RunningSum(digits=2, modulus=4)
    assert not speaks(load_tokenizer(folder), other)


def test_a_broken_tokenizer_is_refused(sums, tmp_path):
    folder = tiny_models.write_model(tmp_path / "model", tiny_models.CONFIGS["llama"]())
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match="Cannot load the tokenizer"):
        task_for_model(sums, folder)
