"""Log-probabilities that a log lacks, from a model, against the bench's own policy of the same folder."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from support import made_logs
from support.refusals import refuses
from support.tiny_models import CONFIGS, write_model

from testbed.errors import UserError
from testbed.logs import recompute
from testbed.logs.readers import read
from testbed.logs.recompute import recomputed, response_logp
from testbed.logs.record import Log, LoggedSequence


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model"), CONFIGS["llama"]())


def by_hand(folder, prompt, token, temperature):
    """Return log-probabilities, one forward pass per token."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    ids, found = list(prompt), []
    for each in token:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0, -1] / temperature
        found.append(float(logits.log_softmax(-1)[each]))
        ids.append(int(each))
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_missing_log_probabilities_are_the_models_and_others_stay(folder, tmp_path, temperature):
    made_logs.open_instruct(tmp_path / "log")
    log = read([tmp_path / "log"])
    log = Log(log.source, log.sequences[:3], log.notes)
    filled = recomputed(log, folder, temperature=temperature)
    for before, after in zip(log.sequences, filled.sequences, strict=True):
        assert_allclose(after.logp_pi, by_hand(folder, before.prompt, before.token, temperature), atol=1e-5)
        assert after.logp_mu is before.logp_mu
    assert f"of 3 sequences was recomputed with {folder} at temperature {temperature:g}" in filled.notes[-1]
    again = recomputed(filled, folder)
    assert again.sequences == filled.sequences
    assert "was not recomputed" in again.notes[-1]
    refuses("Model folder 'nosuch' does not exist", recomputed, filled, Path("nosuch"))


@pytest.mark.slow
def test_text_is_tokenized_prompt_and_response_apart(folder, tmp_path):
    import shutil

    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({str(n): n for n in range(16)}, unk_token="0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    shutil.copytree(folder, tmp_path / "model")
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(str(tmp_path / "model"))
    rows = [{"input": "1 2 3", "output": "4 5", "gts": "", "score": 1.0, "step": 0}]
    made_logs._lines(tmp_path / "0.jsonl", rows)
    (one,) = recomputed(read([tmp_path / "0.jsonl"]), tmp_path / "model").sequences
    assert (one.prompt.tolist(), one.token.tolist(), one.length) == ([1, 2, 3], [4, 5], 2)
    assert_allclose(one.logp_pi, by_hand(tmp_path / "model", [1, 2, 3], [4, 5], 1.0), atol=1e-5)


def test_messages_are_rendered_with_an_opening_unless_the_assistant_spoke_last():
    class Tokenizer:
        chat_template = "any"

        def apply_chat_template(self, messages, tokenize, add_generation_prompt):
            assert not tokenize
            return " ".join(one["role"] for one in messages) + " >" * add_generation_prompt

    for roles in (["user"], ["user", "assistant"], ["user", "assistant", "tool"], ["system"]):
        text = json.dumps([{"role": role, "content": "x"} for role in roles])
        opening = [">"] if roles[-1] != "assistant" else []
        assert recompute._rendered(text, Tokenizer()).split() == [*roles, *opening]
    for plain in ("plain", '[{"role": "us', '{"role": "user"}', "[1, 2]"):
        assert recompute._rendered(plain, Tokenizer()) == plain
    refuses("no chat template", recompute._rendered, text, SimpleNamespace(chat_template=None))


class Bigram(torch.nn.Module):
    """The next token's logits are a row of a table."""

    def __init__(self, logits_VV, positions):
        super().__init__()
        self.table, self.config = torch.nn.Embedding.from_pretrained(logits_VV), positions

    def get_input_embeddings(self):
        return self.table

    def forward(self, input_ids):
        return SimpleNamespace(logits=self.table(input_ids))


def test_a_response_s_tokens_are_scored_by_the_token_before_each_at_the_temperature():
    logits_VV = torch.tensor(np.random.default_rng(0).normal(size=(4, 4)))
    model = Bigram(logits_VV, SimpleNamespace(max_position_embeddings=5))
    law_VV = (logits_VV / 0.5).softmax(-1).log().numpy()
    found = response_logp(model, np.array([1, 3]), np.array([0, 2, 2]), 0.5)
    assert found == pytest.approx([law_VV[3, 0], law_VV[0, 2], law_VV[2, 2]], rel=1e-5)
    with pytest.raises(UserError, match="A sequence has 6 tokens, the model 5 positions"):
        response_logp(model, np.array([1, 3]), np.array([0, 2, 2, 2]), 0.5)
    one = LoggedSequence(0, "a", "g", np.ones(1, dtype=bool), prompt=np.array([1, 3]), token=np.array([0]))
    assert recompute._filled(one, model, "logp_pi", 0.5).logp_pi == pytest.approx([law_VV[3, 0]], rel=1e-5)
    for beyond in (4, -1):
        refuses(
            f"has token {beyond}, the model the tokens 0 to 3: another",
            response_logp,
            model,
            np.array([1, 3]),
            np.array([beyond]),
            0.5,
        )


def test_only_what_is_missing_is_recomputed_and_the_notes_say_how(monkeypatch):
    model = Bigram(torch.zeros(4, 4), SimpleNamespace(max_position_embeddings=None))
    opened = []
    monkeypatch.setattr("testbed.policies.hf.model_folder.check_model_folder", lambda x: x / "checked")
    monkeypatch.setattr(recompute, "_opened", lambda f, text: opened.append((f, text)) or (model, None))
    arrays = {"mask": np.ones(2, dtype=bool), "prompt": np.array([1]), "token": np.array([2, 3])}
    bare = LoggedSequence(0, "a", "g", **arrays)
    full = replace(bare, logp_mu=np.zeros(2), logp_pi=np.ones(2))
    empty = LoggedSequence(0, "b", "g", np.zeros(0, bool), prompt=np.array([1]), token=np.zeros(0, int))
    text = replace(full, text=("p", "r"), logp_pi=None)
    for some, field, whose, said, many in (
        ((bare, full, empty), "logp_pi", "the trainer's",
         ("1 of 3 sequences have no token under their mask: dropped.",), 2),
        ((bare, full), "logp_mu", "the sampler's", (), 1),
        ((text, full), "logp_pi", "the trainer's",
         ("Text was tokenized again: the tokens may differ from the sampled ones.",), 1),
    ):  # fmt: skip
        found = recomputed(Log("made", some, ("n",)), Path("f"), field, 0.5)
        assert found.notes == (
            "n",
            f"{field} ({whose}) of {many} sequences was recomputed with f at temperature 0.5. The same "
            "weights serve every step of the log.", *said,
        )  # fmt: skip
        assert opened.pop() == (Path("f/checked"), some[0] is text)
        assert getattr(found.sequences[0], field) == pytest.approx(np.log([0.25, 0.25]))
        assert found.sequences[1:] == (full,)
    done = recomputed(Log("made", (full,), ("n",)), Path("f"))
    assert done.notes == ("n", "logp_pi is in the log and was not recomputed with f.")
    assert (opened, done.sequences) == ([], (full,))
    for without in (
        replace(bare, token=None), replace(bare, prompt=None), replace(bare, prompt=np.zeros(0, int)),
    ):  # fmt: skip
        with pytest.raises(
            UserError, match=r"^step 0, sample a has no tokens, or no prompt before them: nothing to"
        ):
            recomputed(Log("made", (without,)), Path("f"))
    with pytest.raises(UserError, match="temperature is 0, expected a positive number"):
        recomputed(Log("made", (bare,)), Path("f"), temperature=0.0)


def test_a_model_is_opened_from_its_folder_alone_without_its_code(monkeypatch):
    import transformers

    safe = {"local_files_only": True, "trust_remote_code": False}
    asked = []

    class Opened(str):
        def eval(self):
            return f"{self}, eval"

    def opening(name):
        return lambda folder, **options: asked.append((folder, options)) or Opened(name)

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", opening("model"))
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", opening("tokenizer"))
    assert recompute._opened(Path("f"), text=False) == ("model, eval", None)
    assert recompute._opened(Path("f"), text=True) == ("model, eval", "tokenizer")
    weights = (Path("f"), safe | {"use_safetensors": True, "dtype": torch.float32})
    assert asked == [weights, weights, (Path("f"), safe)]
    for error, reason in ((OSError("one\ntwo"), "one"), (ValueError(), "ValueError")):

        def failing(*_, error=error, **__):
            raise error

        monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", failing)
        told = refuses("", recompute._opened, Path("f"), text=False)
        assert told == f"The model in f cannot be opened: {reason}"


def test_text_becomes_tokens_with_its_advantage_on_each(monkeypatch):
    monkeypatch.setattr(recompute, "encoded", lambda _, text, special: [int(x) for x in text] * (not special))
    one = LoggedSequence(0, "a", "g", np.zeros(0, dtype=bool), text=("12", "345"), scalar_advantage=-0.5)
    found = recompute._tokenized(one, tokenizer=None)
    lists = [getattr(found, name) for name in ("prompt", "token", "mask", "advantage")]
    assert [each.tolist() for each in lists] == [[1, 2], [3, 4, 5], [True] * 3, [-0.5] * 3]
    assert recompute._tokenized(replace(one, scalar_advantage=None), tokenizer=None).advantage is None
