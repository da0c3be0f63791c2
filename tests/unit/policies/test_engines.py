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
from testbed.policies.hf.engines import Completion, written
from testbed.policies.hf.hf_policy import HuggingFacePolicy

TASK = tiny_models.Echo()
N, GROUP = 3, 2


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
    rng = np.random.default_rng(0)
    prompt_RNQ = torch.as_tensor(TASK.prompts(rng, N))[None]
    return prompt_RNQ, policy.sample(theta_RP, prompt_RNQ, GROUP, rng.random((1, N * GROUP, 5)))


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
    assert params["n"] == GROUP
    assert params["temperature"] == 1.5
    assert params["stop_token_ids"] == [TASK.end_token]
    assert params["max_tokens"] == 5
    assert llm.reset == 1
    assert llm.options["logprobs_mode"] == "processed_logprobs"
    assert llm.options["trust_remote_code"] is False


def test_equal_uniforms_give_equal_seeds(policy):
    sample(policy, policy.initial([0]))
    sample(policy, policy.initial([0]))
    seeds = [params["seed"] for _, params in policy.engine._llm.calls]
    assert seeds[0] == seeds[1] > 0


@pytest.mark.parametrize(
    ("answer", "says"),
    [([], "returned 0 responses, expected 1"),
     ([Completion([1, 2], [-1.0], [7, 7])], "has 2 tokens, 1 log-probabilities"),
     ([Completion([], [], [])], "has 0 tokens"), ([Completion([1] * 6, [-1.0] * 6, [7] * 6)], "has 6 tokens"),
     ([Completion([1, 2], [-1.0, -1.0], [7, 6])], "weights of version 6, but version 7 was loaded"),
     ([Completion([12], [-1.0], [7])], "wrote token 12, but the task knows 0 to 11"),
     ([Completion([1], [float("nan")], [7])], "not finite, or above 0"),
     ([Completion([1], [0.5], [7])], "not finite, or above 0")],
)  # fmt: skip
def test_answers_that_cannot_be_are_refused(answer, says):
    refuses(says, written, answer, 1, 5, 12, 7)


def test_what_an_outside_engine_cannot_do_is_refused(policy, monkeypatch, tmp_path):
    prompt_RNQ = torch.ones(1, 1, 6, dtype=torch.int64)
    uniform_RBT = torch.zeros(1, 1, 5)
    with pytest.raises(UserError, match="lacks a different sampling distribution beside"):
        policy.sample(policy.initial([0]), prompt_RNQ, 1, uniform_RBT, distribution=lambda logp, t: logp)
    with pytest.raises(UserError, match="weights at a given token"):
        policy.sample_in_flight(
            policy.initial([0])[:, None], torch.zeros(1, 1, 5), prompt_RNQ, 1, [[[0.0] * 5]]
        )
    with pytest.raises(UserError, match="Unknown engine 'vlm'. Did you mean 'vllm'"):
        HuggingFacePolicy(tmp_path / "m", TASK, engine="vlm")
    monkeypatch.setitem(sys.modules, "vllm", None)
    refuses("needs the package vllm", HuggingFacePolicy, tmp_path / "m", TASK, engine="vllm")
