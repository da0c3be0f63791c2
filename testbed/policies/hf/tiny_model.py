"""Train small language models of several architectures on a task, and save them as ordinary folders."""

import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envs.tokens.token_task import TokenTask
from testbed import rng
from testbed.errors import UserError, unknown
from testbed.policies.hf.hf_policy import HuggingFacePolicy
from testbed.policies.hf.model_folder import quiet_transformers
from testbed.policies.hf.text_task import task_for_model

Progress = Callable[[int, int], None]
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen2": ("Qwen2Config", {}),
    "llama": ("LlamaConfig", {}),
    "gpt-neox": ("GPTNeoXConfig", {}),
    "gemma": ("GemmaConfig", {"head_dim": 16}),
}
"""Names of configurations in transformers, and their fields beyond the common shape."""
TOKENIZERS = ("char", "bpe")
CORPUS = 512
"""Number of problems from which a BPE tokenizer learns its pairs."""
SMALLEST_BPE = 258
"""Every byte, the end and the padding token."""


@dataclass(frozen=True)
class Lesson:
    """Supervised steps on `sequences` fresh prompts each; Adam's rate decays by a cosine to a tenth.

    noise: probability that the teacher corrupts a step, so that reinforcement learning can improve: with
    these numbers about half the one-digit reasoning-gym sums are right.
    """

    steps: int = 900
    noise: float = 0.3
    sequences: int = 64
    learning_rate: float = 3e-3

    def __post_init__(self) -> None:
        """Raise UserError for numbers that teach nothing."""
        if self.steps < 0 or self.sequences < 1 or not self.learning_rate > 0 or not 0 <= self.noise <= 1:
            raise UserError(
                f"steps {self.steps}, sequences {self.sequences}, learning_rate {self.learning_rate} "
                f"and noise {self.noise}: expected at least 0 and 1, above 0, and a probability."
            )


def train_base(
    path: str | Path,
    task: TokenTask,
    architecture: str = "qwen2",
    tokenizer: str = "char",
    seed: int = 0,
    width: int = 64,
    layers: int = 2,
    vocabulary: int = 512,
    lesson: Lesson = Lesson(),
    progress: Progress | None = None,
) -> Path:
    """Train a model from scratch on solutions of the task; save it and its tokenizer as an ordinary folder.

    architecture: one of ARCHITECTURES. tokenizer: "char", one token per symbol of the task, or "bpe",
    byte-level pairs of at most `vocabulary` tokens, learned from the task's prompts and solutions. The same
    arguments give the same files. Weights appear in the folder once they are trained; the default has about
    80,000. progress: called with (steps done, all steps).

    Raises UserError for an unknown architecture or tokenizer, and a width that is not a multiple of 16.
    """
    if width % 16 or width < 16 or layers < 1:
        raise UserError(
            f"width must be a positive multiple of 16 (the width of a head) and layers at least 1, got "
            f"{width} and {layers}."
        )
    if tokenizer not in TOKENIZERS:
        raise unknown("tokenizer", tokenizer, TOKENIZERS)
    out = Path(path)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".untrained-", dir=out.parent) as made:
        folder = Path(made)
        if tokenizer == "char":
            save_tokenizer(folder, task)
        else:
            save_bpe_tokenizer(folder, task, seed, vocabulary)
            (folder / "config.json").write_text("{}")  # AutoTokenizer requires a config file
            save_random_model(folder, task, seed, 16, 1, architecture)
            task = task_for_model(task, folder)
        save_random_model(folder, task, seed, width, layers, architecture)
        teach(folder, task, seed, lesson, progress)
        # Weights come last: whoever finds them finds a trained model, also after a kill.
        for file in sorted(folder.iterdir(), key=lambda each: each.suffix == ".safetensors"):
            os.replace(file, out / file.name)
    return out


def teach(folder: Path, task: TokenTask, seed: int, lesson: Lesson, progress: Progress | None = None) -> None:
    """Train the model in a folder on noisy solutions of a task in its tokens, and save it there."""
    steps, noise = lesson.steps, lesson.noise
    sequences, learning_rate = lesson.sequences, lesson.learning_rate
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


def save_random_model(
    folder: Path, task: TokenTask, seed: int, width: int, layers: int, architecture: str = "qwen2"
) -> None:
    """Write an untrained model with the task's vocabulary; its weights depend only on the seed."""
    import transformers

    if architecture not in ARCHITECTURES:
        raise unknown("architecture", architecture, ARCHITECTURES)
    shape = {
        "vocab_size": task.vocabulary,
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": width // 16,
        "max_position_embeddings": task.prompt_length + task.response_length,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": task.end_token,
        "pad_token_id": task.pad_token,
    }
    name, own = ARCHITECTURES[architecture]
    if architecture != "gpt-neox":
        shape["num_key_value_heads"] = width // 16
    config = getattr(transformers, name)(**shape, **own)
    AutoModelForCausalLM = transformers.AutoModelForCausalLM
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.manual_seed(rng.key(seed, "tiny-model/weights") % 2**63)
        AutoModelForCausalLM.from_config(config).save_pretrained(str(folder))


def save_bpe_tokenizer(folder: Path, task: TokenTask, seed: int, vocabulary: int) -> None:
    """Write a byte-level BPE tokenizer learned from prompts and solutions of the task, with an end token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    if vocabulary < SMALLEST_BPE:
        raise UserError(f"vocabulary is {vocabulary}; byte-level BPE needs at least {SMALLEST_BPE} tokens.")
    generator = rng.generator(seed, "tiny-model/tokenizer")
    prompt_NQ = task.prompts(generator, CORPUS)
    token_NT, mask_NT = task.teacher(prompt_NQ, generator, 0.0)
    end = -1 if task.end_token is None else task.end_token
    rows = zip(prompt_NQ, token_NT, mask_NT & (token_NT != end), strict=True)
    corpus = [f"{task.text(q)}\nAnswer: {task.text(t, m)}" for q, t, m in rows]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    how: dict[str, Any] = {"vocab_size": vocabulary, "initial_alphabet": alphabet, "show_progress": False}
    trainer = trainers.BpeTrainer(special_tokens=["<end>", "<pad>"], **how)
    tokenizer.train_from_iterator(corpus, trainer)
    with quiet_transformers():
        made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<pad>")
        made.save_pretrained(str(folder))


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
        pieces = Regex("|".join(map(re.escape, longest_first)))
        tokenizer.pre_tokenizer = pre_tokenizers.Split(pieces, "isolated")
        tokenizer.decoder = decoders.Fuse()
    roles = {"eos_token": task.end_token, "pad_token": task.pad_token}
    named = {role: special[token] for role, token in roles.items() if token is not None}
    with quiet_transformers():
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named).save_pretrained(str(folder))
