"""Attention of one new token per response to its prompt and to its own past.

The keys and values of a prompt are kept once and shared by its whole group: the loops take a group's queries
together, so no copy per response is written.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from testbed.policies.toy.attention import HIDDEN, compiled, loops


@dataclass(frozen=True)
class PromptCache:
    """One layer's keys [R, N, H, Q', d], values [R, N, H, d, Q'] and biases [R, N, Q'] of the prompts.

    Q' is Q rounded up to a multiple of 4. The bias is 0 at a token and HIDDEN at padding and behind Q.
    """

    key: Tensor
    value: Tensor
    bias: Tensor


def prompt_cache(qkv_RIM: Tensor, first_RN: Tensor, heads: int, length: int) -> PromptCache:
    """Sort by prompt and head what a pass over the prompts' columns [R, 3 D, Q N] has computed."""
    _, k, v = qkv_RIM.unflatten(1, (3, heads, -1)).unflatten(-1, (length, -1)).unbind(1)
    extra = -length % 4
    key, value = pad(k.permute(0, 4, 1, 3, 2), (0, 0, 0, extra)), pad(v.permute(0, 4, 1, 2, 3), (0, extra))
    place = torch.arange(length + extra, device=qkv_RIM.device)
    hidden = (place < first_RN[..., None]) | (place >= length)
    bias = qkv_RIM.new_zeros(hidden.shape).masked_fill_(hidden, HIDDEN)
    return PromptCache(key.contiguous(), value.contiguous(), bias)


def attend_step(own_TRIB: Tensor, cache: PromptCache) -> Tensor:
    """Attention [R, D, B] of the newest of T own tokens (stacked q, k, v) to the prompt and to all T."""
    if not compiled(own_TRIB, cache.key.shape[-1]):
        return dense_step(own_TRIB, cache)
    attended_RDB = own_TRIB.new_empty(own_TRIB.shape[1], own_TRIB.shape[2] // 3, own_TRIB.shape[3])
    arrays = (t.numpy() for t in (own_TRIB, cache.key, cache.value, cache.bias, attended_RDB))
    loops().step_forward(*arrays)
    return attended_RDB


def dense_step(own_TRIB: Tensor, cache: PromptCache) -> Tensor:
    """Return the same with torch alone, for any device and type."""
    _, N, heads, keys, width = cache.key.shape
    own = own_TRIB.unflatten(2, (3, heads, width)).unflatten(-1, (N, -1))
    query, own_key, own_value = own[-1, :, 0], own[:, :, 1], own[:, :, 2]
    prompt_score = torch.einsum("rhdng,rnhkd->rhngk", query, cache.key)
    prompt_score = prompt_score + cache.bias[:, None, :, None]
    own_score = torch.einsum("rhdng,trhdng->rhngt", query, own_key)
    p = torch.cat([prompt_score, own_score], -1).div(width**0.5).softmax(-1)
    attended = torch.einsum("rhngk,rnhdk->rhdng", p[..., :keys], cache.value)
    attended += torch.einsum("rhngt,trhdng->rhdng", p[..., keys:], own_value)
    return attended.flatten(1, 2).flatten(2)
