"""What TRL's GRPO loss reads of its trainer, and random batches to hand to it, without a model.

TRL's own `GRPOTrainer._compute_loss` runs with this in place of the trainer; only the forward pass is
replaced, by log-probabilities that are a leaf of the graph.
"""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from testbed.conformance.peers.trl_losses import stub_trainer as stand_in
from testbed.data.batch import Batch

ACCUMULATION, STEPS_PER_GENERATION = 2, 4
LONGEST = 9


def stub_trainer(logp_BT: Tensor, **options: Any) -> SimpleNamespace:
    """Return the stand-in with several micro-batches and steps per generation."""
    several = {
        "steps_per_generation": STEPS_PER_GENERATION,
        "gradient_accumulation_steps": ACCUMULATION,
        "current_gradient_accumulation_steps": ACCUMULATION,
    }
    return stand_in(logp_BT, **(several | options))


def random_inputs(seed: int, rows: int = 8, spread: float = 0.35) -> tuple[Tensor, dict[str, Tensor]]:
    """Return logp_BT, a leaf in float64, and TRL's inputs: ragged, with tool tokens, both signs, one A = 0.

    The distance from pi to the anchor grows from sequence to sequence, so that some ratios lie inside
    every clip and others outside.
    """
    draw = torch.Generator().manual_seed(seed)
    shape = (rows, LONGEST)

    def noise(scale: Tensor | float) -> Tensor:
        return torch.randn(shape, generator=draw, dtype=torch.float64) * scale

    length_B = torch.randint(2, LONGEST + 1, (rows,), generator=draw)
    completion = torch.arange(LONGEST) < length_B[:, None]
    tool = torch.rand(shape, generator=draw) < 0.8
    tool[:, 0] = True
    anchor = -0.3 - noise(1.0).abs()
    mu = anchor + noise(0.3)
    far_B1 = torch.linspace(0.001, 3 * spread, rows, dtype=torch.float64)[:, None]
    logp = (anchor + noise(far_B1) + far_B1 * torch.sign(noise(1.0)[:, :1]) * 0.3).requires_grad_()
    advantages = torch.randn(rows, generator=draw, dtype=torch.float64)
    advantages[3] = 0.0
    ids = torch.randint(0, 9, shape, generator=draw)
    inputs = {
        "prompt_ids": ids[:, :3], "prompt_mask": torch.ones(rows, 3, dtype=torch.int64),
        "completion_ids": ids, "completion_mask": completion.long(), "tool_mask": tool.long(),
        "advantages": advantages, "old_per_token_logps": anchor, "sampling_per_token_logps": mu,
        "ref_per_token_logps": anchor + noise(0.5),
        "num_items_in_batch": torch.tensor(3 * int((completion & tool).sum()) + 7),
    }  # fmt: skip
    return logp, inputs


def batch_of_inputs(inputs: dict[str, Tensor]) -> Batch:
    """Return what our objectives read of TRL's inputs; written apart from the adapter that does the same."""
    rows = len(inputs["advantages"])
    return Batch(
        logp_mu_BT=inputs["sampling_per_token_logps"],
        adv_BT=inputs["advantages"][:, None].expand(inputs["completion_mask"].shape),
        mask_BT=(inputs["completion_mask"] * inputs["tool_mask"]).bool(), reward_B=inputs["advantages"],
        group_B=torch.arange(rows) // 2, logp_anchor_BT=inputs["old_per_token_logps"],
        logp_ref_BT=inputs["ref_per_token_logps"],
    )  # fmt: skip


def tiny_trainer(kind: type, folder: Any, **options: Any) -> Any:
    """Return a trainer on a random Llama of 900 weights and eight prompts; nothing is downloaded."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback
    from trl import GRPOConfig

    symbols = {symbol: i for i, symbol in enumerate((*"01234567", "<end>", "<pad>"))}
    words = Tokenizer(models.WordLevel(symbols, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<end>")
    llama = LlamaConfig(
        vocab_size=10, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=32, bos_token_id=None, eos_token_id=8, pad_token_id=9,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForCausalLM(llama)
    model.save_pretrained(str(folder))  # where TRL looks for the reference
    chosen = {
        "output_dir": str(folder), "max_steps": 2, "per_device_train_batch_size": 4, "num_generations": 4,
        "steps_per_generation": 2, "gradient_accumulation_steps": 1, "max_completion_length": 6,
        "learning_rate": 0.05, "lr_scheduler_type": "constant", "use_cpu": True, "bf16": False,
        "gradient_checkpointing": False, "report_to": [], "logging_strategy": "no", "save_strategy": "no",
        "disable_tqdm": True, "seed": 3, "model_init_kwargs": {"dtype": "float32"},
    } | options  # fmt: skip
    trainer = kind(
        model=str(folder),
        reward_funcs=lambda completion_ids, **_: [float(sum(ids) % 5) for ids in completion_ids],
        args=GRPOConfig(**chosen),
        train_dataset=Dataset.from_dict({"prompt": [f"{i} {7 - i}" for i in range(8)]}),
        processing_class=tokenizer,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def weights(trainer: Any) -> Tensor:
    """Return all weights of a trainer's model as one vector."""
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
