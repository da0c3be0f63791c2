"""Attention of one new token per response to its prompt and to its own past.

The keys and values of a prompt are kept once and shared by its whole group: the loops take a group's queries
together, so no copy per response is written.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.nn.functional import pad

from testbed.policies.toy_attention import compiled
from testbed.policies.toy_loops import (
    FOUR,
    HIDDEN,
    LOG2_E,
    NOTHING,
    ONE,
    RELAXED,
    ZERO,
    Floats,
    U,
    dots,
    product,
    scaled,
    softmax,
)


@dataclass(frozen=True)
class PromptCache:
    """One layer's keys [R, N, H, K', d], values [R, N, H, d, K'] and biases [R, N, K'] of the prompts.

    K' is K rounded up to a multiple of 4. The bias is 0 at a token and HIDDEN at padding and behind K.
    """

    key: Tensor
    value: Tensor
    bias: Tensor


def prompt_cache(qkv_RCM: Tensor, first_RN: Tensor, heads: int, length: int) -> PromptCache:
    """Sort by prompt and head what a pass over the prompts' columns [R, 3 D, K N] has computed."""
    _, k, v = qkv_RCM.unflatten(1, (3, heads, -1)).unflatten(-1, (length, -1)).unbind(1)
    extra = -length % 4
    key, value = pad(k.permute(0, 4, 1, 3, 2), (0, 0, 0, extra)), pad(v.permute(0, 4, 1, 2, 3), (0, extra))
    place = torch.arange(length + extra, device=qkv_RCM.device)
    hidden = (place < first_RN[..., None]) | (place >= length)
    bias = qkv_RCM.new_zeros(hidden.shape).masked_fill_(hidden, float(HIDDEN))
    return PromptCache(key.contiguous(), value.contiguous(), bias)


def attend_step(own_TRCB: Tensor, cache: PromptCache) -> Tensor:
    """Attention [R, D, B] of the newest of T own tokens (stacked q, k, v) to the prompt and to all T."""
    if not compiled(own_TRCB, cache.key.shape[-1]):
        return dense_step(own_TRCB, cache)
    attended_RDB = own_TRCB.new_empty(own_TRCB.shape[1], own_TRCB.shape[2] // 3, own_TRCB.shape[3])
    arrays = (t.numpy() for t in (own_TRCB, cache.key, cache.value, cache.bias, attended_RDB))
    _attend_step(*arrays)
    return attended_RDB


def dense_step(own_TRCB: Tensor, cache: PromptCache) -> Tensor:
    """Return the same with torch alone, for any device and type."""
    _, N, heads, keys, width = cache.key.shape
    own = own_TRCB.unflatten(2, (3, heads, width)).unflatten(-1, (N, -1))
    query, own_key, own_value = own[-1, :, 0], own[:, :, 1], own[:, :, 2]
    prompt_score = torch.einsum("rhdng,rnhkd->rhngk", query, cache.key)
    prompt_score = prompt_score + cache.bias[:, None, :, None]
    own_score = torch.einsum("rhdng,trhdng->rhngt", query, own_key)
    p = torch.cat([prompt_score, own_score], -1).div(width**0.5).softmax(-1)
    attended = torch.einsum("rhngk,rnhdk->rhdng", p[..., :keys], cache.value)
    attended += torch.einsum("rhngt,trhdng->rhdng", p[..., keys:], own_value)
    return attended.flatten(1, 2).flatten(2)


@njit(cache=True, nogil=True, fastmath=RELAXED)
def _attend_step(
    own_TRCB: Floats, key: Floats, value: Floats, bias_RNK: Floats, attended_RDB: Floats
) -> None:
    """Scores have one row per own token, then one per token of the prompt."""
    T, B, third = U(own_TRCB.shape[0]), U(own_TRCB.shape[3]), U(attended_RDB.shape[1])
    H, keys, head = U(key.shape[2]), U(key.shape[3]), U(key.shape[4])
    p = np.empty((T + keys, B), np.float32)
    high, total = np.empty(B, np.float32), np.empty(B, np.float32)
    for r in range(key.shape[0]):
        o = attended_RDB[r]
        o[:] = NOTHING
        for h in range(H):
            row = h * head
            p[:T] = NOTHING
            for t in range(T):
                for d in range(row, row + head, FOUR):
                    dots(p, t, ZERO, own_TRCB[T - ONE, r], d, ZERO, own_TRCB[t, r], third + d, ZERO, B)
            _prompt_scores(p, T, own_TRCB[T - ONE, r], row, key[r], h, bias_RNK[r])
            softmax(p, T + keys, B, np.float32(LOG2_E / math.sqrt(head)), high, total)
            for t in range(T):
                for d in range(row, row + head, FOUR):
                    scaled(o, d, ZERO, p, t, ZERO, own_TRCB[t, r], third + third + d, ZERO, B)
            _prompt_values(o, row, p, T, value[r], h)


@njit(cache=True, fastmath=RELAXED)
def _prompt_scores(
    p: Floats, top: int, query: Floats, row: int, key: Floats, h: int, bias_NK: Floats
) -> None:
    """p[top + k, b] = bias + q_b k_k, with the keys of b's prompt."""
    N, keys, head = U(key.shape[0]), U(key.shape[2]), U(key.shape[3])
    group = U(p.shape[1]) // N
    for n in range(N):
        key_KD, b = key[n, h], n * group
        for j in range(keys):
            for i in range(b, b + group):
                p[top + j, i] = bias_NK[n, j]
        for j in range(ZERO, keys, FOUR):
            for d in range(ZERO, head, FOUR):
                product(p, top + j, b, key_KD, j, d, query, row + d, b, group)


@njit(cache=True, fastmath=RELAXED)
def _prompt_values(o: Floats, row: int, p: Floats, top: int, value: Floats, h: int) -> None:
    """o[row:row+d, b] += sum over k of p[top + k, b] v_k, with the values of b's prompt."""
    N, head, keys = U(value.shape[0]), U(value.shape[2]), U(value.shape[3])
    group = U(p.shape[1]) // N
    for n in range(N):
        value_DK, b = value[n, h], n * group
        for j in range(ZERO, keys, FOUR):
            for d in range(ZERO, head, FOUR):
                product(o, row + d, b, value_DK, d, j, p, top + j, b, group)
