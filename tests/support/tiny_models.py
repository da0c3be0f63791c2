"""Small random language models in folders, and a small token task, for the tests of Hugging Face policies."""

from pathlib import Path

import numpy as np
import torch
import transformers

from envs.tokens.token_task import TokenTask
from testbed.data.batch import Batch
from testbed.policies.hf.model_folder import quiet_transformers

ROWS = 16
"""Embeddings of every model here: four more than the task below has symbols."""

SHAPE = {
    "vocab_size": ROWS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32,
}  # fmt: skip
NEOX_SHAPE = {name: value for name, value in SHAPE.items() if name != "num_key_value_heads"}
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**SHAPE, tie_word_embeddings=False),
    "qwen3, tied": lambda: transformers.Qwen3Config(**SHAPE, head_dim=8, tie_word_embeddings=True),
    "gpt2": lambda: transformers.GPT2Config(vocab_size=ROWS, n_embd=32, n_layer=2, n_head=4, n_positions=32),
    "mistral, window 4": lambda: transformers.MistralConfig(**SHAPE, sliding_window=4),
    "phi, biased head": lambda: transformers.PhiConfig(**SHAPE),
    "gemma2, capped logits": lambda: transformers.Gemma2Config(
        **SHAPE, head_dim=8, query_pre_attn_scalar=8, sliding_window=4, final_logit_softcapping=2.0
    ),
}
MORE_CONFIGS = {
    "qwen2": lambda: transformers.Qwen2Config(**SHAPE),
    "gpt-neox": lambda: transformers.GPTNeoXConfig(**NEOX_SHAPE),
    "gemma": lambda: transformers.GemmaConfig(**SHAPE, head_dim=8),
    "olmo2": lambda: transformers.Olmo2Config(**SHAPE),
    "stablelm": lambda: transformers.StableLmConfig(**SHAPE),
    "granite, scaled logits": lambda: transformers.GraniteConfig(**SHAPE, logits_scaling=2.0),
}
"""Architectures beside those, for the contract alone."""


def write_model(folder: Path, config: transformers.PretrainedConfig, dtype=torch.float32) -> Path:
    """Save a random model of this configuration, its weights enlarged so that its laws are uneven."""
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.manual_seed(7)
        model = transformers.AutoModelForCausalLM.from_config(config).to(dtype)
        for parameter in model.parameters():
            parameter.data.mul_(5.0 if parameter.dim() > 1 else 1.0)
            if parameter.dim() == 1:
                parameter.data.add_(0.1 * torch.randn_like(parameter))
        model.save_pretrained(str(folder))
    return folder


def open_model(folder: Path, dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    """The same model as transformers itself runs it: no cache, no flat weights, plain attention."""
    with quiet_transformers():
        return transformers.AutoModelForCausalLM.from_pretrained(
            str(folder), dtype=dtype, attn_implementation="eager", local_files_only=True
        ).eval()


class Echo(TokenTask):
    """Prompts of two to five digits; reward 1 for repeating the first one, then the end."""

    symbols = (*"0123456789", "<end>", "<pad>")
    prompt_length = 6
    response_length = 5
    end_token = 10
    pad_token = 11

    def prompts(self, rng, n):
        """Digits behind a ragged margin of padding."""
        digit_NQ = rng.integers(0, 10, size=(n, self.prompt_length))
        length_N = rng.integers(2, 6, size=n)
        return np.where(np.arange(self.prompt_length) < self.prompt_length - length_N[:, None], 11, digit_NQ)

    def score(self, prompt_NQ, response_NT, mask_NT):
        """1 for the first digit and then the end token."""
        answer_NT, inside_NT = self.teacher(prompt_NQ, np.random.default_rng(0), 0.0)
        right_N = (response_NT == answer_NT).all(1) & (mask_NT == inside_NT).all(1)
        return right_N.astype(np.float64)

    def teacher(self, prompt_NQ, rng, noise):
        """The first digit, another one with probability noise, and the end token."""
        first_N = np.take_along_axis(prompt_NQ, (prompt_NQ != 11).argmax(1)[:, None], 1)[:, 0]
        wrong_N = np.where(rng.random(len(first_N)) < noise, rng.integers(1, 10, len(first_N)), 0)
        response_NT = np.zeros((len(prompt_NQ), self.response_length), dtype=np.int64)
        response_NT[:, 0], response_NT[:, 1] = (first_N + wrong_N) % 10, 10
        return response_NT, np.arange(self.response_length) < np.full((len(prompt_NQ), 1), 2)


def moved_rollout(policy, prompts: int, group: int):
    """Weights that have moved away from those that generated, and a batch with everything a loss may read."""
    rng, rows = np.random.default_rng(0), prompts * group
    theta_RP = policy.initial([0])
    prompt_RNQ = torch.as_tensor(policy.task.prompts(rng, prompts))[None]
    uniform_RBT = rng.random((1, rows, policy.task.response_length))
    token_RBT, mask_RBT, logp_RBT = policy.sample(theta_RP, prompt_RNQ, group, uniform_RBT)
    noise = torch.Generator().manual_seed(1)
    moved_RP = theta_RP + 0.02 * torch.randn(theta_RP.shape, generator=noise, dtype=theta_RP.dtype)
    reward_RB = torch.as_tensor(rng.random((1, rows)).round(1))
    batch = Batch(
        logp_mu_BT=logp_RBT, adv_BT=(reward_RB - 0.5)[..., None].expand(logp_RBT.shape).contiguous(),
        mask_BT=mask_RBT, reward_B=reward_RB, group_B=torch.arange(rows)[None] // group,
        logp_ref_BT=logp_RBT - 0.1, turn_BT=torch.zeros_like(token_RBT),
        origin_B=(torch.arange(rows)[None] % 7 == 0).long(),
    )  # fmt: skip
    return moved_RP, prompt_RNQ, token_RBT, batch
