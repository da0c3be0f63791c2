"""Outside engines: what they are given, what is made of their answers, and what is refused of those."""

import sys
import types
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from support import tiny_models
from support.refusals import refuses

from testbed.errors import UserError
from testbed.policies.hf import engines
from testbed.policies.hf.engines import Completion, Sampling, VllmEngine, seed_of, written
from testbed.policies.hf.hf_policy import HuggingFacePolicy

TASK = tiny_models.Echo()
N, GROUP = 3, 2
UNIFORM_RBT = np.random.default_rng(0).random((1, N * GROUP, 5))


@dataclass
class Logprob:
    logprob: float


class FakeLlm:
    """vllm.LLM as far as it is used: a real model behind its names, one greedy token and the end."""

    def __init__(self, **options):
        self.options = options
        self.module = tiny_models.open_model(options["model"])
        self.calls = []
        self.reset = 0

    def apply_model(self, function):
        names = dict(self.module.named_parameters())
        view = types.SimpleNamespace(load_weights=lambda g: [names[name].data.copy_(v) for name, v in g])
        return [function(view)]

    def reset_prefix_cache(self):
        self.reset += 1

    def generate(self, prompts, params):
        self.calls.append((prompts, params))
        found = []
        for prompt in prompts:
            with torch.no_grad():
                logits_V = self.module(torch.tensor([prompt["prompt_token_ids"]])).logits[0, -1, :12]
            law_V = (logits_V / params["temperature"]).log_softmax(-1)
            tokens = [int(law_V[:10].argmax()), 10]
            steps = [{tokens[0]: Logprob(float(law_V[tokens[0]]))}, {10: Logprob(-0.5), 3: Logprob(-0.1)}]
            one = types.SimpleNamespace(token_ids=tokens, logprobs=steps)
            found.append(types.SimpleNamespace(outputs=[one] * params["n"]))
        return found


@pytest.fixture
def policy(tmp_path, monkeypatch):
    fake = types.ModuleType("vllm")
    fake.LLM, fake.SamplingParams = FakeLlm, lambda **given: given
    monkeypatch.setitem(sys.modules, "vllm", fake)
    folder = tiny_models.write_model(tmp_path / "m", tiny_models.CONFIGS["llama"]())
    return HuggingFacePolicy(folder, TASK, temperature=1.5, engine="vllm")


def sample(policy, theta_RP):
    prompt_RNQ = torch.as_tensor(TASK.prompts(np.random.default_rng(0), N))[None]
    return prompt_RNQ, policy.sample(theta_RP, prompt_RNQ, GROUP, UNIFORM_RBT)


@pytest.mark.parametrize("lora", [0, 2])
def test_vllm_is_given_the_weights_and_its_log_probabilities_are_the_behavior_s(policy, lora, tmp_path):
    if lora:
        pytest.importorskip("peft")
        policy = HuggingFacePolicy(tmp_path / "m", TASK, temperature=1.5, engine="vllm", lora=lora)
    noise = torch.Generator().manual_seed(0)
    theta_RP = policy.initial([0])
    theta_RP = theta_RP + 0.1 * torch.randn(theta_RP.shape, generator=noise)
    prompt_RNQ, (token_RBT, mask_RBT, logp_RBT) = sample(policy, theta_RP)
    trained_RBT = policy.logp(theta_RP, prompt_RNQ, token_RBT, mask_RBT)
    torch.testing.assert_close(trained_RBT[..., 0], logp_RBT[..., 0], rtol=0, atol=1e-4)
    assert mask_RBT.sum(-1).unique().tolist() == [2]
    assert logp_RBT[0, 0].tolist()[1:] == [-0.5, 0, 0, 0]
    llm = policy.engine._llm
    prompts, params = llm.calls[0]
    assert prompts[0]["prompt_token_ids"] == [v for v in prompt_RNQ[0, 0].tolist() if v != TASK.pad_token]
    assert params == {
        "n": GROUP, "temperature": 1.5, "top_p": 1.0, "top_k": 0, "max_tokens": 5, "logprobs": 0,
        "stop": None,
        "seed": int(UNIFORM_RBT[0, 0, 0] * 2**31),
        "stop_token_ids": [TASK.end_token], "include_stop_str_in_output": True, "ignore_eos": False,
        "skip_special_tokens": False,
    }  # fmt: skip
    assert (llm.reset, policy.loaded, policy.engine._version) == (1, 1, 1)
    assert llm.options == {
        "model": str(tmp_path / "m"), "logprobs_mode": "processed_logprobs", "gpu_memory_utilization": 0.3,
        "trust_remote_code": False,
    }  # fmt: skip
    sample(policy, theta_RP)
    assert (llm.calls[1][1], policy.loaded) == (params, 2)  # equal uniforms have equal seeds
    policy.engine.generate([[1, 2]], 3, Sampling(1.0, 4, (), ("x",)), 7)
    ended = {"n": 3, "seed": 7, "stop": ["x"], "stop_token_ids": [], "ignore_eos": True, "max_tokens": 4}
    assert ended.items() <= llm.calls[2][1].items()
    assert seed_of(torch.tensor([[0.75, 0.5], [0.25, 0.5]])) == 3 * 2**29


@pytest.mark.parametrize(
    ("answer", "says"),
    [([], "The engine returned 0 responses, expected 1."), ([([1, 2], [-1.0], [7, 7])], (2, 1, 2)),
     ([([1], [-1.0], [7, 7])], (1, 1, 2)), ([([], [], [])], (0, 0, 0)),
     ([([1] * 6, [-1.0] * 6, [7] * 6)], (6, 6, 6)),
     ([([1, 2], [-1.0, -1.0], [7, 6])], "Response 0 of the engine was written by weights of version 6, but "
      "version 7 was loaded: its weights are stale."),
     ([([12], [-1.0], [7])], "The engine wrote token 12, but the task knows 0 to 11."),
     ([([-1, 3], [-1.0, -1.0], [7, 7])], "The engine wrote token -1, but the task knows 0 to 11."),
     *(([([1, 2], [-1.0, bad], [7, 7])], "The engine returned log-probabilities that are not finite, or "
     "above 0.")
       for bad in (float("nan"), -float("inf"), 2e-4))],
)  # fmt: skip
def test_answers_that_cannot_be_are_refused(answer, says):
    if isinstance(says, tuple):
        tokens, logp, versions = says
        says = (f"Response 0 of the engine has {tokens} tokens, {logp} log-probabilities and {versions} "
        f"versions; "
                "expected equally many, from 1 to 5.")  # fmt: skip
    assert refuses("", written, [Completion(*each) for each in answer], 1, 5, 12, 7) == says


def test_answers_become_rows_with_zeros_behind_their_ends():
    found = written(
        [Completion([11, 0], [-1.0, 5e-5], [7, 7]), Completion([3] * 3, [-2.0] * 3, [7] * 3)], 2, 3, 12, 7
    )
    assert [x.tolist() for x in found[:2]] == [
        [[11, 0, 0], [3, 3, 3]], [[True, True, False], [True, True, True]],
    ]  # fmt: skip
    torch.testing.assert_close(found[2], torch.tensor([[-1.0, 5e-5, 0.0], [-2.0] * 3]))


def test_what_an_outside_engine_cannot_do_is_refused(policy, monkeypatch, tmp_path):
    prompt_RNQ = torch.ones(1, 1, 6, dtype=torch.int64)
    uniform_RBT = torch.zeros(1, 1, 5)
    with pytest.raises(UserError, match="lacks a different sampling distribution beside"):
        policy.sample(policy.initial([0]), prompt_RNQ, 1, uniform_RBT, distribution=lambda logp, t: logp)
    with pytest.raises(UserError, match="weights at a given token"):
        policy.sample_in_flight(
            policy.initial([0])[:, None], torch.zeros(1, 1, 5), prompt_RNQ, 1, [[[0.0] * 5]]
        )
    refuses("lacks other frozen weights beside an outside engine", policy.with_frozen, None)
    with pytest.raises(UserError, match="Unknown engine 'vlm'. Did you mean 'vllm'"):
        HuggingFacePolicy(tmp_path / "m", TASK, engine="vlm")
    monkeypatch.setitem(sys.modules, "vllm", None)
    refuses("^engine 'vllm' needs the package vllm .a GPU machine.: pip install vllm, or leave "
    "policy_args.engine "
            "out to sample here.$", HuggingFacePolicy, tmp_path / "m", TASK, engine="vllm")  # fmt: skip


def test_an_answer_has_the_log_probability_of_each_of_its_own_tokens(monkeypatch):
    steps = [{7: Logprob(-0.5), 3: Logprob(-2.0)}, {3: Logprob(-0.25), 7: Logprob(-1.5)}, {5: Logprob(-4.0)}]
    answer = types.SimpleNamespace(token_ids=(3, 7, 5), logprobs=steps)
    found = VllmEngine._completion(types.SimpleNamespace(_version=6), answer)
    assert found == Completion([3, 7, 5], [-2.0, -1.5, -4.0], [6, 6, 6])
    monkeypatch.setitem(engines.ENGINES, "mine", lambda path: ("opened", path))
    assert engines.open_engine("mine", "folder") == ("opened", "folder")
    refuses("engine", engines.open_engine, "vlm", "folder")
