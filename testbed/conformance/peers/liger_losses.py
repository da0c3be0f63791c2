"""Liger: the chunked GRPO losses, from hidden states; with an identity head these are logits."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from testbed.conformance.peers import PeerLosses, telling

KINDS = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo")

WIDE = {"epsilon_low": 0.2, "epsilon_high": 0.28}
NARROW = {"epsilon_low": 3e-3, "epsilon_high": 4e-3}


def _loss(**options: Any) -> Callable[..., Any]:
    def loss(
        logits: Tensor,
        labels: Tensor,
        old_per_token_logps: Tensor,
        advantages_per_response: Tensor,
        completion_mask: Tensor,
    ) -> Any:
        from liger_kernel.chunked_loss import LigerFusedLinearGRPOLoss

        chunked = LigerFusedLinearGRPOLoss(beta=0.0, compiled=False, use_ref_model=False, **options)
        head = torch.eye(logits.shape[-1], dtype=logits.dtype)
        return chunked(
            logits,
            head,
            labels,
            completion_mask,
            advantages_per_response,
            old_per_token_logps=old_per_token_logps,
        )

    return telling(loss, options)


def losses() -> PeerLosses:
    """Return the loss of every loss_type and level, in chunks of one response and of two."""
    import liger_kernel.chunked_loss  # noqa: F401

    found: PeerLosses = {}
    for kind in KINDS:
        for level in ("token", "sequence"):
            bounds = NARROW if level == "sequence" else WIDE
            bounds = {"epsilon_high": 5.0} if kind == "cispo" else bounds
            options: dict[str, Any] = {"loss_type": kind, "importance_sampling_level": level, **bounds}
            if kind == "dr_grpo":
                options["max_completion_length"] = 11
            name = f"LigerFusedLinearGRPOLoss loss_type={kind} importance_sampling_level={level}"
            found[name] = _loss(**options)
    found["LigerFusedLinearGRPOLoss loss_type=grpo delta=1.6"] = _loss(loss_type="grpo", delta=1.6)
    found["LigerFusedLinearGRPOLoss loss_type=dapo chunk_size=2"] = _loss(loss_type="dapo", chunk_size=2)
    return found
