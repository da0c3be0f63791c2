"""Attention of one new token per response to its prompt and to its own past."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from testbed.policies.toy import compiled
from testbed.policies.toy.attention import HIDDEN


@dataclass(frozen=True)
class PromptCache:
    """One layer's keys and values of the prompts, [Q, R, 2 D, B], and biases [R, Q, B], by response.

    Every response has its own copy: the loops then take all responses of a replica side by side, which is
    worth more than the memory. The bias is 0 at a token and HIDDEN at padding.
    """

    key_value: Tensor
    bias: Tensor
    heads: int


def prompt_cache(qkv_RIM: Tensor, first_RN: Tensor, heads: int, length: int, group: int) -> PromptCache:
    """Sort by token and response what a pass over the prompts' columns [R, 3 D, Q N] has computed."""
    D = qkv_RIM.shape[1] // 3
    kv_QRJN = qkv_RIM[:, D:].unflatten(-1, (length, -1)).permute(2, 0, 1, 3)
    hidden_RQN = torch.arange(length, device=qkv_RIM.device)[:, None] < first_RN[:, None]
    bias_RQN = qkv_RIM.new_zeros(hidden_RQN.shape).masked_fill_(hidden_RQN, HIDDEN)
    return PromptCache(
        kv_QRJN.repeat_interleave(group, 3).contiguous(), bias_RQN.repeat_interleave(group, 2), heads
    )


def attend_step(own_TRIB: Tensor, cache: PromptCache) -> Tensor:
    """Attention [R, D, B] of the newest of T own tokens (stacked q, k, v) to the prompt and to all T."""
    _, R, rows, B = own_TRIB.shape
    if not compiled.serves(own_TRIB) or rows // (3 * cache.heads) % 4:
        return dense_step(own_TRIB, cache)
    attended_RDB = own_TRIB.new_empty(R, rows // 3, B)
    arrays = (t.numpy() for t in (own_TRIB, cache.key_value, cache.bias, attended_RDB))
    compiled.attention_loops().step_forward(*arrays, np.uint64(cache.heads))
    return attended_RDB


def dense_step(own_TRIB: Tensor, cache: PromptCache) -> Tensor:
    """Return the same with torch alone, for any device and type."""
    own = own_TRIB.unflatten(2, (3, cache.heads, -1))
    key, value = torch.cat([cache.key_value.unflatten(2, (2, cache.heads, -1)), own[:, :, 1:]]).unbind(2)
    score_RHKB = torch.einsum("rhdb,krhdb->rhkb", own[-1, :, 0], key)
    score_RHKB[:, :, : cache.bias.shape[1]] += cache.bias[:, None]
    p_RHKB = score_RHKB.div(key.shape[3] ** 0.5).softmax(2)
    return torch.einsum("rhkb,krhdb->rhdb", p_RHKB, value).flatten(1, 2)
