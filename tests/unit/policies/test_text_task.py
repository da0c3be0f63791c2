"""Token tasks as text: a model's own tokenizer reads the prompts, and its decoded answers are scored.

Problems of a file for models with a tokenizer: what is padded, what ends a response, what is refused.
"""

import json

import numpy as np
import pytest
import torch
import transformers
from support import tiny_models
from support.refusals import refuses
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from envs.tokens.jsonl import Jsonl
from envs.tokens.reasoning_gym import ReasoningGym
from envs.tokens.running_sum import RunningSum
from testbed.config.run import Run
from testbed.errors import UserError
from testbed.policies.hf.chat_task import ChatTask, encoded, end_tokens
from testbed.policies.hf.hf_policy import HuggingFacePolicy
from testbed.policies.hf.text_task import TextTask, load_tokenizer, speaks, task_for_model
from testbed.policies.hf.tiny_model import save_tokenizer
from testbed.training.loop import train

CORPUS = ["12 + 34 =\nAnswer: 46\n", "Answer: -7", "00 11 22 33 44 55 66 77 88 99 10 20 30"] * 20


def byte_level(begin: bool = False) -> transformers.PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer as GPT-2 and Qwen have; it merges, so tokens are not characters."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
    )  # fmt: skip
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
    ended = task.tokenizer.convert_ids_to_tokens(task.end_token)
    assert task.text(*(x[0] for x in rows(task, "12"))) == f"12{ended}"


@pytest.mark.parametrize(("begin", "specials"), [(False, 1), (True, 2)])
def test_a_prompt_has_room_for_a_token_per_byte_and_the_special_ones(sums, begin, specials):
    task = TextTask(sums, byte_level(begin), "é: {prompt}!")
    assert (
        task.prompt_length == sums.prompt_length * (len("<end>") + 1) + len(b"\xc3\xa9: {prompt}!") + specials
    )
    assert (task.response_length, TextTask(sums, byte_level(), response_length=9).response_length) == (
        sums.response_length + 4,
        9,
    )


@pytest.mark.parametrize("inner", [ReasoningGym(), RunningSum(digits=4), RunningSum(digits=4, modulus=12)])
def test_the_noiseless_teacher_scores_one_and_its_prompts_come_back(tokenizer, inner):
    task = TextTask(inner, tokenizer, response_length=24)
    prompt_NQ = task.prompts(np.random.default_rng(1), 32)
    answer = task.teacher(prompt_NQ, np.random.default_rng(2), 0.0)
    assert (task.score(prompt_NQ, *answer) == 1.0).all()
    assert (task._originals(prompt_NQ) == inner.prompts(np.random.default_rng(1), 32)).all()
    fitting = TextTask(inner, tokenizer, response_length=answer[1].sum(1).max())  # and no token more
    assert (fitting.score(prompt_NQ, *fitting.teacher(prompt_NQ, np.random.default_rng(2), 0.0)) == 1.0).all()
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
    ended |= {f"{answer}0": 0, f"{answer} or not": 0, f"{answer}<|endoftext|>": 0, "123456789": 0}
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


def test_a_prompt_that_starts_with_the_padding_of_others_is_refused():
    characters = {symbol: token for token, symbol in enumerate("0123456789= \nAnswer:")}
    plain = Tokenizer(models.BPE(vocab=characters, merges=[]))
    plain.decoder = decoders.Fuse()
    without_names = transformers.PreTrainedTokenizerFast(tokenizer_object=plain)
    task = TextTask(RunningSum(digits=2, modulus=4), without_names)
    refuses("which serves as padding here", task.prompts, np.random.default_rng(0), 32)


def test_a_tokenizer_that_changes_prompts_is_refused(sums):
    lossy = byte_level()
    lossy.backend_tokenizer.normalizer = normalizers.Replace("+", "-")
    refuses("so prompts cannot be told apart", TextTask, sums, lossy)


def test_bad_templates_and_foreign_prompts_are_refused(tokenizer, sums):
    refuses("template must hold", TextTask, sums, tokenizer, template="Answer:")
    task = TextTask(sums, tokenizer)
    prompt_NQ = np.full((1, task.prompt_length), task.tokenizer("z").input_ids[0])
    refuses("is not one of this task's prompts", task.score, prompt_NQ, *rows(task, "1"))
    short = TextTask(sums, tokenizer, response_length=1)
    prompt_NQ = short.prompts(np.random.default_rng(0), 1)
    refuses("raise response_length, now 1", short.teacher, prompt_NQ, np.random.default_rng(0), 0.0)


def test_a_user_model_with_its_own_tokenizer_learns_the_task_as_text(tokenizer, sums, tmp_path):
    config = transformers.Qwen3Config(
        **{**tiny_models.SHAPE, "vocab_size": 320, "max_position_embeddings": 64}
    )
    folder = tiny_models.write_model(tmp_path / "model", config)
    tokenizer.save_pretrained(str(folder))
    task = task_for_model(sums, folder)
    assert isinstance(task, TextTask)
    assert task.vocabulary == len(tokenizer) < 320
    assert task_for_model(sums, folder, "{prompt}\n= ").template == "{prompt}\n= "
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
    wider = load_tokenizer(folder)
    wider.add_tokens(["more"])
    assert speaks(wider, sums)
    other = RunningSum(digits=2, modulus=4)
    assert not speaks(load_tokenizer(folder), other)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.model", "vocab.json"])
def test_a_broken_tokenizer_is_refused(sums, tmp_path, name):
    folder = tiny_models.write_model(tmp_path / "model", tiny_models.CONFIGS["llama"]())
    (folder / name).write_text("{")
    refuses("Cannot load the tokenizer", task_for_model, sums, folder)


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


def chat_tokenizer(begin=False, behind=False, template=None, words=None, **roles):
    """A tokenizer of printable characters; begin and behind put special tokens around every text."""
    made = Tokenizer(words or models.BPE({s: v for v, s in enumerate([*SPECIALS, *CHARACTERS])}, []))
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


def chat_rows(task, *texts, end=2):
    token_NT = np.zeros((len(texts), task.response_length), dtype=np.int64)
    mask_NT = np.zeros(token_NT.shape, dtype=bool)
    for n, text in enumerate(texts):
        tokens = task._plain(text) + ([] if end is None else [end])
        token_NT[n, : len(tokens)], mask_NT[n, : len(tokens)] = tokens, True
    return token_NT, mask_NT


def every_prompt(task):
    return task._written(np.arange(len(task.task.problems)))


def test_a_chat_prompt_is_the_template_opened_for_the_answer_with_one_begin_token(jsonl):
    task = ChatTask(jsonl(system="Be short."), chat_tokenizer(begin=True, template=TEMPLATE))
    assert task.text(every_prompt(task)[0]) == (
        "<s><|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\nSay hi.<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    plain = ChatTask(jsonl(system="Be short.", chat="no"), chat_tokenizer(begin=True, template=TEMPLATE))
    assert plain.text(every_prompt(plain)[0]) == "<s>Be short.\n\nSay hi."


def test_padding_lies_on_the_left_and_is_no_token_that_a_prompt_starts_with(jsonl):
    assert ChatTask(jsonl(PROBLEMS[:1]), chat_tokenizer()).pad_token == 0
    # Without a padding token of its own the end token would pad; but the prompt "</s>" begins with that.
    for roles in ({}, {"pad_token": None}, {"pad_token": "</s>"}):
        task = ChatTask(jsonl(), chat_tokenizer(**roles))
        prompt_NQ = every_prompt(task)
        real_NQ = (prompt_NQ != task.pad_token).cumsum(1) > 0
        lengths = [len(task._plain(p["prompt"])) for p in PROBLEMS]
        assert real_NQ.sum(1).tolist() == lengths
        assert [task._problem(row) for row in prompt_NQ] == [0, 1, 2]
        inside = [task.pad_token, *task._plain("a"), task.pad_token, *task._plain("b")]
        assert task.text(inside) == f"a{task.symbols[task.pad_token]}b"


def test_held_out_problems_are_those_that_training_never_draws(jsonl, tmp_path):
    jsonl()
    task = ChatTask(Jsonl(file=str(tmp_path / "mine.jsonl"), held_out=0.4), chat_tokenizer())
    drawn = [draw(np.random.default_rng(0), 40) for draw in (task.prompts, task.held_out_prompts)]
    both = [{task._problem(prompt_Q) for prompt_Q in prompt_NQ} for prompt_NQ in drawn]
    assert sorted(both[0]) + sorted(both[1]) in ([0, 1, 2], [1, 2, 0], [0, 2, 1])

    class Split(RunningSum):
        def held_out_prompts(self, rng, n):
            return self.prompts(rng, n)[::-1]

    text = TextTask(Split(digits=3), byte_level())
    held_NQ, prompt_NQ = (f(np.random.default_rng(0), 8) for f in (text.held_out_prompts, text.prompts))
    assert (held_NQ[::-1] == prompt_NQ).all()
    assert (held_NQ != prompt_NQ).any()


def test_an_end_token_that_is_also_the_padding_token_still_ends_and_counts(jsonl, tmp_path):
    """The trap of masks made by comparing with the padding token: they lose the end of every response."""
    made = chat_tokenizer(pad_token="</s>")
    task = ChatTask(jsonl(PROBLEMS[:1], response_length=6), made, [4])
    assert task.pad_token == task.end_token
    first = ChatTask(jsonl(PROBLEMS[:1]), chat_tokenizer(eos_token="<pad>"), [4])
    assert (first.end_token, first.end_tokens) == (0, (0, 4))
    shape = {**tiny_models.SHAPE, "vocab_size": len(made), "max_position_embeddings": 64}
    folder = tiny_models.write_model(tmp_path / "m", transformers.LlamaConfig(**shape))
    policy = HuggingFacePolicy(folder, task)
    end = lambda law_RVB, t: torch.full_like(law_RVB, -torch.inf).index_fill(  # noqa: E731
        1, torch.tensor([2 if t == 1 else 70]), 0.0
    )
    theta_RP, prompt_RNQ = policy.initial([0]), torch.as_tensor(every_prompt(task))[None]
    token_RBT, mask_RBT, _ = policy.sample(theta_RP, prompt_RNQ, 2, np.full((1, 2, 6), 0.5), distribution=end)
    assert token_RBT[0, 0].tolist() == [70, 2, 0, 0, 0, 0]
    assert mask_RBT[0, 0].tolist() == [True, True, False, False, False, False]
    assert (policy.logp(theta_RP, prompt_RNQ, token_RBT, mask_RBT)[0, 0, :2] < 0).all()


def test_every_end_token_of_the_model_ends_a_response(jsonl, tmp_path):
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [4, 2]}')
    (tmp_path / "config.json").write_text('{"eos_token_id": 2}')
    assert end_tokens(tmp_path) == [4, 2]
    task = ChatTask(jsonl(), chat_tokenizer(template=TEMPLATE), end_tokens(tmp_path))
    assert task.end_tokens == (2, 4)
    prompt_NQ = every_prompt(task)[:1]
    for end, reward in ((2, 1.0), (4, 1.0), (3, 0.0), (None, 0.0)):
        assert task.score(prompt_NQ, *chat_rows(task, "hi", end=end)).tolist() == [reward]


def test_a_stop_string_ends_a_response_and_is_not_judged(jsonl, tmp_path):
    made = chat_tokenizer()
    task = ChatTask(jsonl(PROBLEMS[:1], stop='["\\n\\n", "###"]', response_length=12), made)
    assert task.score(every_prompt(task), *chat_rows(task, "hi###", end=None)).tolist() == [1.0]
    shape = {**tiny_models.SHAPE, "vocab_size": len(made), "max_position_embeddings": 64}
    policy = HuggingFacePolicy(
        tiny_models.write_model(tmp_path / "m", transformers.LlamaConfig(**shape)), task
    )
    script = task._plain("hi##" + "###more")

    def law(law_RVB, t):
        return torch.full_like(law_RVB, -torch.inf).index_fill(1, torch.tensor([script[t]]), 0.0)

    prompt_RNQ = torch.as_tensor(every_prompt(task))[None]
    token_RBT, mask_RBT, _ = policy.sample(
        policy.initial([0]), prompt_RNQ, 1, np.zeros((1, 1, len(script))), distribution=law
    )
    assert made.decode(token_RBT[0, 0][mask_RBT[0, 0]]) == "hi###"


def test_the_teacher_scores_one(jsonl):
    for task in (
        ChatTask(jsonl(), chat_tokenizer(template=TEMPLATE), [4]),
        ChatTask(jsonl(stop="\n"), chat_tokenizer(eos_token=None)),
    ):
        prompt_NQ = every_prompt(task)
        assert (
            task.score(prompt_NQ, *task.teacher(prompt_NQ, np.random.default_rng(0), 0.0)).tolist()
            == [1.0] * 3
        )
        wrong = task.teacher(prompt_NQ, np.random.default_rng(0), 1.0)
        assert task.score(prompt_NQ, *wrong).sum() < 3


def test_a_noisy_teacher_gives_the_answers_of_the_other_problems(jsonl):
    task = ChatTask(jsonl(), chat_tokenizer(begin=True))
    token_NT, mask_NT = task.teacher(every_prompt(task).repeat(200, 0), np.random.default_rng(0), 0.3)
    said = np.array([task._answer(*each)[0] for each in zip(map(np.extract, mask_NT, token_NT))])
    own_PN = (said == np.repeat([problem["answer"] for problem in PROBLEMS], 200)).reshape(3, 200)
    assert own_PN.mean(1) == pytest.approx(0.7, abs=0.1)  # standard error .032
    for p, row in enumerate(said.reshape(3, 200)):
        shares = [(row == problem["answer"]).mean() for problem in PROBLEMS]
        assert np.delete(shares, p) == pytest.approx(0.15, abs=0.08)
    wrong = task.teacher(every_prompt(task), np.random.default_rng(1), 1.0)
    assert task.score(every_prompt(task), *wrong).sum() == 0
    alone = ChatTask(jsonl(PROBLEMS[:1]), chat_tokenizer())  # no other problem to take an answer from
    assert alone.score(
        every_prompt(alone), *alone.teacher(every_prompt(alone), np.random.default_rng(1), 1.0)
    ).all()


@pytest.mark.parametrize(("length", "shown"), [(80, 80 * "é"), (81, 77 * "é" + "…")])
def test_what_a_tokenizer_cannot_write_is_shown_in_80_characters(length, shown):
    with pytest.raises(UserError, match=f"cannot write '{shown}': "):
        encoded(lambda *_, **__: 1 / 0, length * "é")


def test_an_answer_ends_before_the_first_of_its_stops_wherever_that_is(jsonl):
    task = ChatTask(jsonl(stop='["##", "!"]', response_length=9), chat_tokenizer())
    cut = {"##ab": "", "a!b##": "a", "a##b!": "a", "ab##": "ab", "ab#": "ab#"}
    for text, kept in cut.items():
        assert task._answer(np.array(task._plain(text))) == (kept, kept != text), text
    task = ChatTask(jsonl(stop='["#", "é!"]'), chat_tokenizer(eos_token=None))
    assert task._encode_answer(task.task.problems[0])[-1:] == task._plain("#")


def test_prompts_answers_and_stops_are_those_of_the_tokens(jsonl):
    task = ChatTask(jsonl(stop='["##", "é!"]', response_length=7), chat_tokenizer(), [4, 2])
    assert (task.end_token, task.end_tokens, task.response_length) == (2, (2, 4), 7)
    assert ChatTask(jsonl(stop="x"), chat_tokenizer(eos_token=None)).end_token is None
    assert ChatTask(jsonl(), chat_tokenizer(eos_token=None), [4, 3]).end_token == 4
    assert ChatTask(jsonl(), chat_tokenizer()).response_length == len("end") + 1 + 4
    rng = np.random.default_rng
    assert (task.prompts(rng(3), 5) == task._written(task.task.draw(rng(3), 5))).all()
    spelled = [task._plain(text) for text in ("a#b#", "##", "abc##defgh", "ab##cdefgh", "a##bcdefg")]
    padded = np.array([[5] * (12 - len(row)) + row for row in spelled])
    assert task.stopped(padded).tolist() == [False, True, True, False, False]  # in the newest 3 + 4 tokens
    token_NT, mask_NT = task.teacher(every_prompt(task), rng(0), 0.0)
    for row_T, mask_T, problem in zip(token_NT, mask_NT, PROBLEMS, strict=True):
        said = [*task._plain(problem["answer"]), 2]
        assert (row_T.tolist(), mask_T.tolist()) == (
            said + [0] * (7 - len(said)), [True] * len(said) + [False] * (7 - len(said)),
        )  # fmt: skip
    short = ChatTask(jsonl(response_length=3), chat_tokenizer())
    assert refuses("", short.teacher, every_prompt(short), rng(0), 0.0) == (
        "The answer of line 2 has 4 tokens; raise task_args.response_length, now 3."
    )
    assert task._answer(np.array(task._plain("x#y##z"))) == ("x#y", True)
    assert task._answer(np.array([*task._plain("xy"), 4])) == ("xy", True)
    assert task._answer(np.array(task._plain("xy"))) == ("xy", False)
    assert task._answer(np.array([], dtype=np.int64)) == ("", False)


@pytest.mark.parametrize(
    ("arguments", "roles"),
    [({}, {"eos_token": None}), ({}, {"behind": True}), ({"chat": "yes"}, {}),
     ({"system": "x"}, {"template": "{{ raise_exception('no system role') }}"}),
     ({"chat": "auto"}, {"template": "constant"}),
     ({}, {"words": models.WordLevel({"a": 0}, unk_token="<unk>")})],
)  # fmt: skip
def test_tokenizers_that_cannot_serve_are_refused(jsonl, arguments, roles):
    refuses(".", ChatTask, jsonl(**arguments), chat_tokenizer(**roles))


def test_a_conversation_needs_a_template(jsonl):
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    with pytest.raises(UserError, match="conversations of several messages"):
        ChatTask(jsonl([{"prompt": talk, "answer": "c"}]), chat_tokenizer())


@pytest.mark.slow
def test_a_real_model_trains_on_a_file_and_counts_what_its_verifier_does(jsonl, tmp_path):
    made = chat_tokenizer(template=TEMPLATE)
    shape = {**tiny_models.SHAPE, "vocab_size": 128, "max_position_embeddings": 128}
    folder = tiny_models.write_model(tmp_path / "m", transformers.Qwen2Config(**shape))
    made.save_pretrained(str(folder))
    (tmp_path / "judge.py").write_text("def judge(response, problem):\n return 1 / (len(response) - 2) > 0\n")
    jsonl()
    arguments = {"file": str(tmp_path / "mine.jsonl"), "verifier": f"{tmp_path / 'judge.py'}:judge"}
    arguments |= {"held_out": 0, "response_length": 6, "judge_unfinished": True}
    run = Run(
        task="jsonl", task_args=tuple(arguments.items()), policy="hf", model=str(folder), steps=3, prompts=2,
        group=4, optimizer="adam", learning_rate=1e-3, log_every=1, evaluation_prompts=2,
    )  # fmt: skip
    refuses("cannot judge the reference answer of line 1: ZeroDivisionError", train, run)
    (tmp_path / "judge.py").write_text(
        "def judge(response, problem):\n"
        "    return 1 / (len(response) != 6 or response in ('hi', 'end', '4')) > 0\n"
    )
    table = train(run)
    assert isinstance(task_for_model(Jsonl(**arguments), folder), ChatTask)
    assert np.all(np.diff(table["verifier/errors"]) >= 0)
    assert table["verifier/errors"][-1] > 0
    assert np.all(table["verifier/timeouts"] == 0)
