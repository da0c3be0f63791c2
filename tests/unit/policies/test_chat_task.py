"""Problems of a file for models with a tokenizer: what is padded, what ends a response, what is refused."""

import json

import numpy as np
import pytest
import torch
import transformers
from support import tiny_models
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from envs.tokens.jsonl import Jsonl
from testbed.config.run import Run
from testbed.errors import UserError
from testbed.policies.hf.chat_task import ChatTask, end_tokens
from testbed.policies.hf.policy import HuggingFacePolicy
from testbed.policies.hf.text_task import task_for_model
from testbed.training.loop import train

SPECIALS = ("<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>")
CHARACTERS = [chr(c) for c in range(32, 127)] + ["\n"]
TEMPLATE = (
    "{{ '<s>' }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PROBLEMS = [
    {"prompt": "Say hi.", "answer": "hi"},
    {"prompt": "</s>", "answer": "end"},
    {"prompt": "What is 2+2? Tell me now, and say nothing else.", "answer": "4"},
]


def tokenizer(begin=False, behind=False, template=None, **roles):
    """A tokenizer of printable characters; begin and behind put special tokens around every text."""
    made = Tokenizer(models.BPE({s: v for v, s in enumerate([*SPECIALS, *CHARACTERS])}, []))
    made.add_special_tokens(list(SPECIALS))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made.decoder = decoders.Fuse()
    if begin or behind:
        single = ("<s> " if begin else "") + "$A" + (" </s>" if behind else "")
        made.post_processor = processors.TemplateProcessing(
            single=single, special_tokens=[("<s>", 1), ("</s>", 2)]
        )
    roles = {"eos_token": "</s>", "pad_token": "<pad>"} | roles
    found = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, **{role: name for role, name in roles.items() if name}
    )
    found.chat_template = template
    return found


@pytest.fixture
def jsonl(tmp_path):
    def make(problems=PROBLEMS, **arguments):
        path = tmp_path / "mine.jsonl"
        path.write_text("\n".join(map(json.dumps, problems)))
        return Jsonl(file=str(path), held_out=0.0, **arguments)

    return make


def rows(task, *texts, end=2):
    token_NT = np.zeros((len(texts), task.response_length), dtype=np.int64)
    mask_NT = np.zeros(token_NT.shape, dtype=bool)
    for n, text in enumerate(texts):
        tokens = task._plain(text) + ([] if end is None else [end])
        token_NT[n, : len(tokens)], mask_NT[n, : len(tokens)] = tokens, True
    return token_NT, mask_NT


def every_prompt(task):
    return task._written(np.arange(len(task.task.problems)))


def test_a_chat_prompt_is_the_template_opened_for_the_answer_with_one_begin_token(jsonl):
    task = ChatTask(jsonl(system="Be short."), tokenizer(begin=True, template=TEMPLATE))
    assert task.text(every_prompt(task)[0]) == (
        "<s><|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\nSay hi.<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    plain = ChatTask(jsonl(system="Be short.", chat="no"), tokenizer(begin=True, template=TEMPLATE))
    assert plain.text(every_prompt(plain)[0]) == "<s>Be short.\n\nSay hi."


def test_padding_lies_on_the_left_and_is_no_token_that_a_prompt_starts_with(jsonl):
    # Without a padding token of its own the end token would pad; but the prompt "</s>" begins with that.
    for roles in ({}, {"pad_token": None}, {"pad_token": "</s>"}):
        task = ChatTask(jsonl(), tokenizer(**roles))
        prompt_NQ = every_prompt(task)
        real_NQ = (prompt_NQ != task.pad_token).cumsum(1) > 0
        lengths = [len(task._plain(p["prompt"])) for p in PROBLEMS]
        assert real_NQ.sum(1).tolist() == lengths
        assert [task._problem(row) for row in prompt_NQ] == [0, 1, 2]


def test_an_end_token_that_is_also_the_padding_token_still_ends_and_counts(jsonl, tmp_path):
    """The trap of masks made by comparing with the padding token: they lose the end of every response."""
    made = tokenizer(pad_token="</s>")
    task = ChatTask(jsonl(PROBLEMS[:1], response_length=6), made, [4])
    assert task.pad_token == task.end_token
    shape = {**tiny_models.SHAPE, "vocab_size": len(made), "max_position_embeddings": 64}
    folder = tiny_models.write_model(tmp_path / "m", transformers.LlamaConfig(**shape))
    policy = HuggingFacePolicy(folder, task)
    end = lambda law_RVB, t: torch.full_like(law_RVB, -torch.inf).index_fill(  # noqa: E731
        1, torch.tensor([2 if t == 1 else 70]), 0.0
    )
    theta_RP, prompt_RNQ = policy.initial([0]), torch.as_tensor(every_prompt(task))[None]
    token_RBT, mask_RBT, _ = policy.sample(theta_RP, prompt_RNQ, 2, np.full((1, 2, 6), 0.5), law=end)
    assert token_RBT[0, 0].tolist() == [70, 2, 0, 0, 0, 0]
    assert mask_RBT[0, 0].tolist() == [True, True, False, False, False, False]
    assert (policy.logp(theta_RP, prompt_RNQ, token_RBT, mask_RBT)[0, 0, :2] < 0).all()


def test_every_end_token_of_the_model_ends_a_response(jsonl, tmp_path):
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [4, 2]}')
    (tmp_path / "config.json").write_text('{"eos_token_id": 2}')
    assert end_tokens(tmp_path) == [4, 2]
    task = ChatTask(jsonl(), tokenizer(template=TEMPLATE), end_tokens(tmp_path))
    assert task.end_tokens == (2, 4)
    prompt_NQ = every_prompt(task)[:1]
    for end, reward in ((2, 1.0), (4, 1.0), (3, 0.0), (None, 0.0)):
        assert task.score(prompt_NQ, *rows(task, "hi", end=end)).tolist() == [reward]


def test_a_stop_string_ends_a_response_and_is_not_judged(jsonl, tmp_path):
    made = tokenizer()
    task = ChatTask(jsonl(PROBLEMS[:1], stop='["\\n\\n", "###"]', response_length=12), made)
    assert task.score(every_prompt(task), *rows(task, "hi###", end=None)).tolist() == [1.0]
    shape = {**tiny_models.SHAPE, "vocab_size": len(made), "max_position_embeddings": 64}
    policy = HuggingFacePolicy(
        tiny_models.write_model(tmp_path / "m", transformers.LlamaConfig(**shape)), task
    )
    script = task._plain("hi##" + "###more")

    def law(law_RVB, t):
        return torch.full_like(law_RVB, -torch.inf).index_fill(1, torch.tensor([script[t]]), 0.0)

    prompt_RNQ = torch.as_tensor(every_prompt(task))[None]
    token_RBT, mask_RBT, _ = policy.sample(
        policy.initial([0]), prompt_RNQ, 1, np.zeros((1, 1, len(script))), law=law
    )
    assert made.decode(token_RBT[0, 0][mask_RBT[0, 0]]) == "hi###"


def test_the_teacher_scores_one(jsonl):
    for task in (
        ChatTask(jsonl(), tokenizer(template=TEMPLATE), [4]),
        ChatTask(jsonl(stop="\n"), tokenizer(eos_token=None)),
    ):
        prompt_NQ = every_prompt(task)
        assert (
            task.score(prompt_NQ, *task.teacher(prompt_NQ, np.random.default_rng(0), 0.0)).tolist()
            == [1.0] * 3
        )
        wrong = task.teacher(prompt_NQ, np.random.default_rng(0), 1.0)
        assert task.score(prompt_NQ, *wrong).sum() < 3


@pytest.mark.parametrize(
    ("arguments", "roles", "says"),
    [
        ({}, {"eos_token": None}, "has no end token"),
        ({}, {"behind": True}, "end token behind every prompt"),
        ({"chat": "yes"}, {}, "has no chat template"),
        ({"system": "x"}, {"template": "{{ raise_exception('no system role') }}"}, "line 1: no system role"),
        ({"chat": "auto"}, {"template": "constant"}, "prompts of lines 1 and [23] alike"),
    ],
)
def test_tokenizers_that_cannot_serve_are_refused(jsonl, arguments, roles, says):
    with pytest.raises(UserError, match=says):
        ChatTask(jsonl(**arguments), tokenizer(**roles))


def test_a_conversation_needs_a_template(jsonl):
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    with pytest.raises(UserError, match="conversations of several messages"):
        ChatTask(jsonl([{"prompt": talk, "answer": "c"}]), tokenizer())


@pytest.mark.slow
def test_a_real_model_trains_on_a_file_and_counts_what_its_verifier_does(jsonl, tmp_path):
    made = tokenizer(template=TEMPLATE)
    shape = {**tiny_models.SHAPE, "vocab_size": 128, "max_position_embeddings": 128}
    folder = tiny_models.write_model(tmp_path / "m", transformers.Qwen2Config(**shape))
    made.save_pretrained(str(folder))
    (tmp_path / "judge.py").write_text(
        "def judge(response, problem):\n    return 1 / (len(response) - 2) > 0\n"
    )
    jsonl()
    arguments = {"file": str(tmp_path / "mine.jsonl"), "verifier": f"{tmp_path / 'judge.py'}:judge"}
    arguments |= {"held_out": 0, "response_length": 6, "judge_unfinished": True}
    run = Run(
        task="jsonl", task_args=tuple(arguments.items()), policy="hf", model=str(folder), steps=3, prompts=2,
        group=4, optimizer="adam", learning_rate=1e-3, log_every=1, evaluation_prompts=2,
    )  # fmt: skip
    with pytest.raises(UserError, match="cannot judge the reference answer of line 1: ZeroDivisionError"):
        train(run)
    (tmp_path / "judge.py").write_text(
        "def judge(response, problem):\n"
        "    return 1 / (len(response) != 6 or response in ('hi', 'end', '4')) > 0\n"
    )
    table = train(run)
    assert isinstance(task_for_model(Jsonl(**arguments), folder), ChatTask)
    assert np.all(np.diff(table["verifier/errors"]) >= 0)
    assert table["verifier/errors"][-1] > 0
    assert np.all(table["verifier/timeouts"] == 0)
