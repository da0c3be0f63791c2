"""A tiny Qwen2-shaped language model, really trained on a token task and saved as a Hugging Face model."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from envs.tokens.base import TokenTask
from testbed import rng
from testbed.errors import UserError
from testbed.policies.hf.model_folder import quiet_transformers
from testbed.policies.hf.policy import HuggingFacePolicy

Progress = Callable[[int, int], None]


def train_tiny_model(
    path: str | Path,
    task: TokenTask,
    seed: int = 0,
    steps: int = 900,
    width: int = 64,
    layers: int = 2,
    *,
    noise: float = 0.3,
    sequences: int = 64,
    learning_rate: float = 3e-3,
    progress: Progress | None = None,
) -> Path:
    """Train a model on solutions of the task, save it with its tokenizer, and return the folder.

    Supervised steps of Adam on `sequences` fresh prompts each, cosine decay to a tenth of the learning rate.
    The teacher corrupts each step with probability `noise`, so that reinforcement learning starts with room:
    by default a one-digit reasoning-gym sum is then right about half the time.
    The same arguments give the same files. `progress` is called with (steps done, steps in all).
    Heads are 16 wide, so `width` must be a multiple of 16; the default has about 80,000 weights.
    """
    if width % 16 or width < 16:
        raise UserError(f"width must be a positive multiple of 16 (the width of a head), got {width}.")
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    save_tokenizer(folder, task)
    save_random_model(folder, task, seed, width, layers)
    policy = HuggingFacePolicy(folder, task)
    theta_RP = policy.initial([seed]).requires_grad_()
    optimizer = torch.optim.Adam([theta_RP], lr=learning_rate, betas=(0.9, 0.99))
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = learning_rate * (0.55 + 0.45 * np.cos(np.pi * step / steps))
        optimizer.zero_grad(set_to_none=True)
        teaching_loss(policy, theta_RP, task, sequences, noise, seed, step).backward()
        torch.nn.utils.clip_grad_norm_([theta_RP], 1.0)
        optimizer.step()
        if progress is not None:
            progress(step + 1, steps)
    policy.save(theta_RP.detach()[0], folder)
    return folder


def teaching_loss(
    policy: HuggingFacePolicy,
    theta_RP: Tensor,
    task: TokenTask,
    sequences: int,
    noise: float,
    seed: int,
    step: int,
) -> Tensor:
    """Return -mean log pi(solution token) over fresh prompts and noisy solutions, a scalar."""
    prompt_NQ = task.prompts(rng.generator(seed, "tiny-model/prompts", step), sequences)
    token_NT, mask_NT = task.teacher(prompt_NQ, rng.generator(seed, "tiny-model/teacher", step), noise)
    prompt_RNQ, token_RBT, mask_RBT = (torch.as_tensor(a)[None] for a in (prompt_NQ, token_NT, mask_NT))
    return -policy.logp(theta_RP, prompt_RNQ, token_RBT, mask_RBT).sum() / mask_RBT.sum()


def save_random_model(folder: Path, task: TokenTask, seed: int, width: int, layers: int) -> None:
    """Write an untrained Qwen2 with the task's vocabulary; its weights depend on the seed alone."""
    from transformers import AutoModelForCausalLM, Qwen2Config

    config = Qwen2Config(
        vocab_size=task.vocabulary,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 16,
        num_key_value_heads=width // 16,
        max_position_embeddings=task.prompt_length + task.response_length,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=task.end_token,
        pad_token_id=task.pad_token,
    )
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.manual_seed(rng.key(seed, "tiny-model/weights") % 2**63)
        AutoModelForCausalLM.from_config(config).save_pretrained(str(folder))


def save_tokenizer(folder: Path, task: TokenTask) -> None:
    """Write a tokenizer with one token per symbol, numbered as in the task; AutoTokenizer loads it back."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({s: v for v, s in enumerate(task.symbols)}, unk_token="<unk>"))
    special = {v: task.symbols[v] for v in (task.end_token, task.pad_token) if v is not None}
    if any(len(s) > 1 for v, s in enumerate(task.symbols) if v not in special):
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    else:
        longest_first = sorted(task.symbols, key=len, reverse=True)
        tokenizer.pre_tokenizer = pre_tokenizers.Split(
            Regex("|".join(map(re.escape, longest_first))), "isolated"
        )
        tokenizer.decoder = decoders.Fuse()
    roles = {"eos_token": task.end_token, "pad_token": task.pad_token}
    named = {role: special[token] for role, token in roles.items() if token is not None}
    with quiet_transformers():
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named).save_pretrained(str(folder))
