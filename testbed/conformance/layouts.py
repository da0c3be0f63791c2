"""The same batch in three layouts: padded rows, one packed row, lists of tensors; all keep the gradient."""

from typing import Any

import torch
from torch import Tensor

from testbed.conformance.signature import Binding
from testbed.data.batch import Batch

SYMBOLS = 3
"""Vocabulary of logits made from log-probabilities."""


def present(mask_BT: Tensor) -> Tensor:
    """Return True for tokens up to the last one under the mask; bool [B, T]."""
    return mask_BT.flip(-1).cummax(-1).values.flip(-1)


def call_arguments(
    binding: Binding, logp_BT: Tensor, batch: Batch, dtype: torch.dtype, totals: tuple[int, int] | None = None
) -> dict[str, Any]:
    """Return the keyword arguments of one call, in the binding's layout and dtype.

    Only logp_BT may carry a gradient. totals: tokens and responses of the whole update, if the batch is a
    part of it.
    """
    mask_BT = batch.mask_BT
    there_BT = present(mask_BT)
    tokens, sequences = totals or (int(mask_BT.sum()), mask_BT.shape[0])
    per_token: dict[str, Tensor] = {
        "logp": logp_BT.to(dtype) * 1,  # not the leaf itself, which forbids in-place changes
        "old": batch.logp_anchor_BT.to(dtype),
        "anchor": batch.logp_anchor_BT.to(dtype),
        "mu": batch.logp_mu_BT.to(dtype),
        "ref": (batch.logp_ref_BT if batch.logp_ref_BT is not None else batch.logp_mu_BT).to(dtype),
        "mask": mask_BT.clone() if binding.mask_as == "bool" else mask_BT.to(dtype),
        "labels": _labels(mask_BT),
    }
    per_row = {"reward": batch.reward_B.to(dtype).clone(), "group": batch.group_B.clone()}
    if "logits" in binding.roles:
        per_token["logits"] = logits_of(per_token["logp"], per_token["labels"])
    (per_token if binding.adv_per_token else per_row)["adv"] = (
        batch.adv_BT.to(dtype) if binding.adv_per_token else batch.adv_BT[:, 0].to(dtype).clone()
    )
    rest = {} if binding.layout != "packed" else _segments(there_BT, binding.row_axis)
    whole = {"tokens": torch.tensor(tokens), "sequences": torch.tensor(sequences), "batch": batch, **rest}
    found: dict[str, Any] = {}
    for name, role in binding.arguments.items():
        if role == "logp" and "batch" in binding.roles:
            found[name] = per_token["logp"]
        elif role in per_token:
            found[name] = laid_out(per_token[role], there_BT, binding)
        else:
            found[name] = per_row[role] if role in per_row else whole[role]
    return found | dict(binding.given)


def laid_out(value_BT: Tensor, there_BT: Tensor, binding: Binding) -> Any:
    """Return a value per token in the binding's layout."""
    if binding.layout == "packed":
        row_N = value_BT[there_BT]
        return row_N[None] if binding.row_axis else row_N
    if binding.layout == "lists":
        return [row[:length].clone() for row, length in zip(value_BT, there_BT.sum(-1).tolist(), strict=True)]
    return value_BT.clone()


def in_rows(value: Any, there_BT: Tensor, binding: Binding) -> Tensor | None:
    """Return a per-token result as [B, T], 0 at padding; None for another result."""
    if isinstance(value, list | tuple):
        lengths = there_BT.sum(-1).tolist()
        if [tuple(each.shape) for each in value] != [(length,) for length in lengths]:
            return None
        flat_N = torch.cat(list(value))
        return torch.zeros(there_BT.shape, dtype=flat_N.dtype).masked_scatter(there_BT, flat_N)
    if binding.layout == "packed":
        count = int(there_BT.sum())
        if value.shape not in ((count,), (1, count)):
            return None
        return torch.zeros(there_BT.shape, dtype=value.dtype).masked_scatter(there_BT, value.reshape(-1))
    return value if value.shape == there_BT.shape else None


def logits_of(logp_BT: Tensor, labels_BT: Tensor) -> Tensor:
    """Return logits [B, T, SYMBOLS] under which the labels have these log-probabilities."""
    # Padding may hold any number, even 0, which leaves no mass for other symbols.
    usable_BT = torch.where(logp_BT.detach() < -1e-4, logp_BT, torch.full_like(logp_BT, -1.0))
    rest_BT = torch.log1p(-usable_BT.exp()) - torch.log(torch.tensor(float(SYMBOLS - 1), dtype=logp_BT.dtype))
    hit_BTV = torch.nn.functional.one_hot(labels_BT, SYMBOLS).bool()
    # Such a shift changes no log-probability, but shows a loss that forgets the softmax.
    shift_BTV = torch.linspace(-0.5, 0.5, logp_BT.shape[-1], dtype=logp_BT.dtype)[None, :, None]
    return torch.where(hit_BTV, logp_BT[..., None], rest_BT[..., None]) + shift_BTV


def _labels(mask_BT: Tensor) -> Tensor:
    rows, width = mask_BT.shape
    return (torch.arange(rows)[:, None] + torch.arange(width)) % SYMBOLS


def _segments(there_BT: Tensor, row_axis: bool) -> dict[str, Tensor]:
    rows, width = there_BT.shape
    segment_N = torch.arange(rows)[:, None].expand(rows, width)[there_BT]
    position_N = torch.arange(width).expand(rows, width)[there_BT]
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), there_BT.sum(-1).cumsum(0)])
    found = {"segments": segment_N, "positions": position_N}
    return {k: v[None] if row_axis else v for k, v in found.items()} | {"offsets": offsets.to(torch.int32)}
