"""TRL: GRPOTrainer's loss for every loss_type and importance_sampling_level, and AsyncGRPOTrainer's."""

import dataclasses
import os
import re
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from testbed.conformance.peers import PeerLosses, telling

WIDE = {"epsilon_low": 0.2, "epsilon_high": 0.28}
NARROW = {"epsilon_low": 3e-3, "epsilon_high": 4e-3}
"""Bounds of token ratios, and of sequence ratios, which move less."""


class OneProcess:
    """The part of an accelerator that the loss uses, on one process."""

    num_processes = 1
    process_index = 0
    sync_gradients = True

    def gather(self, value: Tensor) -> Tensor:
        return value

    def gather_for_metrics(self, value: Tensor) -> Tensor:
        return value

    def reduce(self, value: Tensor, reduction: str) -> Tensor:  # noqa: ARG002
        return value


def stub_trainer(logp_BT: Tensor, **options: Any) -> SimpleNamespace:
    """Return a substitute for a trainer, with GRPOConfig's defaults except for the given options."""
    from trl import GRPOTrainer

    chosen = {
        "loss_type": "grpo", "importance_sampling_level": "token", "epsilon_low": 0.2, "epsilon_high": 0.2,
        "beta": 0.0, "off_policy_mask_threshold": None, "use_vllm": False, "top_entropy_quantile": 1.0,
        "vllm_importance_sampling_correction": True, "max_completion_length": 11, "delta": None,
        "use_bias_correction_kl": True, "sapo_temperature_pos": 1.0, "sapo_temperature_neg": 1.05,
        "vespo_k_pos": 2.0, "vespo_lambda_pos": 3.0, "vespo_k_neg": 3.0, "vespo_lambda_neg": 2.0,
        "steps_per_generation": 1, "gradient_accumulation_steps": 1,
        "current_gradient_accumulation_steps": 1, "aux_loss_enabled": False,
        "_entropy_bonus_enabled": False, "num_generations": 2, "training": True,
        "router_aux_loss_coef": 0.3,
    } | options  # fmt: skip
    return SimpleNamespace(
        **chosen,
        args=SimpleNamespace(**chosen),
        model=SimpleNamespace(training=chosen["training"]),
        accelerator=OneProcess(),
        get_off_policy_mask=GRPOTrainer.get_off_policy_mask,
        get_gamma_weights=GRPOTrainer.get_gamma_weights,
        _get_per_token_logps_and_entropies=lambda *_, compute_aux_loss, **__: (
            logp_BT,
            torch.zeros_like(logp_BT),
            logp_BT.square().mean() if compute_aux_loss else None,
        ),
        _metrics=defaultdict(lambda: defaultdict(list)),
    )


def _computed(options: dict[str, Any], logp: Tensor, mask: Tensor, **inputs: Tensor) -> Tensor:
    from trl import GRPOTrainer

    ids = torch.zeros_like(mask, dtype=torch.int64)
    tokens = {"prompt_ids": ids[:, :1], "prompt_mask": ids[:, :1] + 1, "completion_ids": ids}
    counted = {"completion_mask": mask.long(), "num_items_in_batch": mask.sum()}
    found: Tensor = GRPOTrainer._compute_loss(stub_trainer(logp, **options), None, tokens | counted | inputs)
    return found


def _grpo(**options: Any) -> Callable[..., Any]:
    def loss(
        per_token_logps: Tensor, old_per_token_logps: Tensor, advantages: Tensor, completion_mask: Tensor
    ) -> Tensor:
        old = {"old_per_token_logps": old_per_token_logps, "advantages": advantages}
        return _computed(options, per_token_logps, completion_mask, **old)

    return telling(loss, options)


def _with_reference(**options: Any) -> Callable[..., Any]:
    def loss(
        per_token_logps: Tensor,
        old_per_token_logps: Tensor,
        ref_per_token_logps: Tensor,
        advantages: Tensor,
        completion_mask: Tensor,
    ) -> Tensor:
        old = {"old_per_token_logps": old_per_token_logps, "advantages": advantages}
        ref = {"ref_per_token_logps": ref_per_token_logps}
        return _computed(options, per_token_logps, completion_mask, **ref, **old)

    return telling(loss, options)


def async_loss(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, loss_mask: Tensor, segment_ids: Tensor
) -> Tensor:
    """AsyncGRPOTrainer.compute_loss on one packed row, with the default clip of 0.2."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    from trl.experimental.async_grpo.async_grpo_trainer import AsyncGRPOTrainer

    count = log_probs.shape[-1]
    place = torch.arange(count)[None]
    kept = loss_mask.bool()
    none = torch.full((1, 1), -1)
    trainer = SimpleNamespace(
        epsilon_low=0.2, epsilon_high=0.2, accelerator=OneProcess(), aux_loss_enabled=False,
        current_gradient_accumulation_steps=1, _metrics=defaultdict(lambda: defaultdict(list)),
        _step_forward_tokens=0.0, _step_trained_tokens=0.0, _step_seq_len_weighted=0.0, _step_samples=0.0,
        _step_forward_s=0.0,
    )  # fmt: skip
    inputs = {
        "attention_mask": torch.ones_like(place), "token_index": torch.where(kept, place, -1),
        "input_ids": place, "position_ids": place, "shift_labels": place, "old_log_probs": old_log_probs,
        "advantages": advantages, "segment_id": segment_ids, "tree_kv_index": none,
        "tree_cu_seqlens_q": none, "tree_cu_seqlens_k": none, "tree_max_seqlens": torch.tensor([[1, 1]]),
        "global_n_tokens": kept.sum()[None].to(log_probs.dtype),
        "global_n_forward_tokens": torch.tensor([float(count)]), "mean_seq_len": torch.tensor([float(count)]),
    }  # fmt: skip
    outputs = SimpleNamespace(log_probs=log_probs, entropy=torch.zeros_like(log_probs))
    found: Tensor = AsyncGRPOTrainer.compute_loss(trainer, lambda **_: outputs, inputs)
    return found


def losses() -> PeerLosses:
    """Return the loss of every loss_type and level, with a KL term, with delta, and the asynchronous one."""
    found: PeerLosses = {}
    from trl import GRPOConfig

    field = next(each for each in dataclasses.fields(GRPOConfig) if each.name == "loss_type")
    text = field.metadata["help"].split("Supported values are")[1].split(". ")[0]
    for kind in sorted(set(re.findall(r"'(\w+)'", text))):
        for level in ("token", "sequence"):
            bounds = NARROW if level == "sequence" else WIDE
            bounds = {"epsilon_high": 5.0} if kind == "cispo" else bounds
            options = {"loss_type": kind, "importance_sampling_level": level, **bounds}
            found[f"GRPOTrainer loss_type={kind} importance_sampling_level={level}"] = _grpo(**options)
    found["GRPOTrainer loss_type=grpo delta=1.6"] = _grpo(loss_type="grpo", delta=1.6)
    for corrected in (False, True):
        name = f"GRPOTrainer loss_type=grpo beta=0.04 use_bias_correction_kl={corrected}"
        found[name] = _with_reference(beta=0.04, use_bias_correction_kl=corrected)
    found["AsyncGRPOTrainer"] = async_loss
    return found
