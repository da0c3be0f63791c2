"""Attention of one new token per response to its prompt and to the earlier tokens of the response."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from testbed.policies.toy import compiled
from testbed.policies.toy.attention import HIDDEN

LEAST_GROUP = 8
"""Smaller groups get a copy of their prompt's keys and values per response: loops process eight at a time."""


@dataclass(frozen=True)
class PromptCache:
    """One layer's stacked queries, keys and values of prompts, [R, 3 D, Q C], and biases [R, Q C].

    Column k C + c is token k of column c, which serves B / C responses side by side: C is the number of
    prompts, or of responses. The bias is 0 at a token and HIDDEN at padding.
    """

    qkv: Tensor
    bias: Tensor
    heads: int
    length: int

    def by_response(self, group: int) -> "PromptCache":
        """Return a cache with a separate copy for each response."""

        def spread(x: Tensor) -> Tensor:
            columns = x.shape[-1] // self.length if self.length else 0
            return x.unflatten(-1, (self.length, columns)).repeat_interleave(group, -1).flatten(-2)

        return PromptCache(spread(self.qkv), spread(self.bias), self.heads, self.length)


def prompt_cache(qkv_RIM: Tensor, first_RN: Tensor, heads: int, length: int, group: int) -> PromptCache:
    """Store the results of a pass over the prompts' columns [R, 3 D, Q N]."""
    hidden_RQN = torch.arange(length, device=qkv_RIM.device)[:, None] < first_RN[:, None]
    bias_RQN = qkv_RIM.new_zeros(hidden_RQN.shape).masked_fill_(hidden_RQN, HIDDEN)
    kept = PromptCache(qkv_RIM.contiguous(), bias_RQN.flatten(1), heads, length)
    return kept.by_response(group) if 1 < group < LEAST_GROUP else kept


def attend_step(own_TRIB: Tensor, cache: PromptCache) -> Tensor:
    """Attention [R, D, B] of the newest of T own tokens (stacked q, k, v) to the prompt and to all T."""
    _, R, rows, B = own_TRIB.shape
    if not served(own_TRIB, cache):
        return dense_step(own_TRIB, cache)
    attended_RDB = own_TRIB.new_empty(R, rows // 3, B)
    arrays = (t.numpy() for t in (attended_RDB, own_TRIB.view(-1, B), cache.qkv, cache.bias))
    compiled.step_loops().attend_step(*arrays, counts(own_TRIB, cache))
    return attended_RDB


def served(own_TRIB: Tensor, cache: PromptCache) -> bool:
    """Return True if compiled loops can run a step: they process a head's features four at a time."""
    return compiled.serves(own_TRIB) and own_TRIB.shape[2] // (3 * cache.heads) % 4 == 0


def counts(own_TRIB: Tensor, cache: PromptCache) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Own tokens, prompts' tokens and heads, in the form of the compiled loops."""
    return np.uint64(len(own_TRIB)), np.uint64(cache.length), np.uint64(cache.heads)


def dense_step(own_TRIB: Tensor, cache: PromptCache) -> Tensor:
    """The same with torch alone, for any device and type."""
    B = own_TRIB.shape[3]
    columns = cache.bias.shape[1] // cache.length if cache.length else B
    kept = cache if columns == B else cache.by_response(B // columns)
    prompt_QRIB = kept.qkv.unflatten(-1, (cache.length, B)).permute(2, 0, 1, 3)
    both = torch.cat([prompt_QRIB, own_TRIB]).unflatten(2, (3, cache.heads, -1))
    key, value = both[:, :, 1], both[:, :, 2]
    score_RHKB = torch.einsum("rhdb,krhdb->rhkb", both[-1, :, 0], key)
    score_RHKB[:, :, : cache.length] += kept.bias.unflatten(-1, (1, cache.length, B))
    p_RHKB = score_RHKB.div(key.shape[3] ** 0.5).softmax(2)
    return torch.einsum("rhkb,krhdb->rhdb", p_RHKB, value).flatten(1, 2)
