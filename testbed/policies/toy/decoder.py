"""Next-token distributions one token at a time: prompts are read once, keys and values are kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from testbed.policies.policy import Drawn
from testbed.policies.token_versions import present
from testbed.policies.toy import compiled
from testbed.policies.toy.attention import HIDDEN, Tree, tree_attention
from testbed.policies.toy.layers import (
    EPSILON,
    Layer,
    Weights,
    embed,
    finish_block,
    log_distribution,
    unrounded,
)

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


class Decoder(Protocol):
    """Interface between sampler and model: log-probabilities [R, V, B] of the next token of B responses."""

    def first(self) -> Tensor:
        """Return the distribution of the first token."""
        ...

    def after(self, token_RB: Tensor, t: int) -> Tensor:
        """Return the distribution of token t + 1, given token t; called for t = 0, 1, ... in order."""
        ...


@dataclass(frozen=True)
class Prompts:
    """Prompts with G responses each; first_RN is the index of each prompt's first token after padding."""

    token_RNQ: Tensor
    first_RN: Tensor
    group: int


@dataclass(frozen=True)
class KeyValues:
    """Keys and values, layer by layer: of prompts, and of own tokens (stacked q, k, v [L, T, R, 3 D, B])."""

    prompts: Sequence[PromptCache]
    own: Tensor


def of_version(part: Mapping[int, Tensor], version_RB: Tensor) -> Tensor:
    """Return each response's part [..., R, X, B], by its version."""
    chosen, *others = part.items()
    value = chosen[1]
    for version, other in others:
        value = torch.where((version_RB == version)[:, None], other, value)
    return value


def prompts_of_version(read: Mapping[int, list[PromptCache]], version_RB: Tensor) -> list[PromptCache]:
    """Return each layer's prompt keys and values, as computed by each response's version."""
    some, B = next(iter(read.values())), version_RB.shape[1]
    if len(read) == 1:
        return some
    merged = []
    for layer in zip(*read.values(), strict=True):
        whole = [cache.by_response(B * cache.length // cache.bias.shape[1]) for cache in layer]
        each = zip(read, whole, strict=True)
        parts = {v: cache.qkv.unflatten(-1, (-1, B)).flatten(1, 2) for v, cache in each}
        chosen = of_version(parts, version_RB).view_as(whole[0].qkv)
        merged.append(replace(whole[0], qkv=chosen))
    return merged


class VersionedDecoder:
    """Each token's distribution under its version's weights; keys and values stay as they were made.

    Args:
        weights: by version.
        version_RBT: the version that predicts token t. It has read token t - 1, or the prompt if t = 0, and
            made their keys and values; those of earlier tokens are older.
    """

    def __init__(
        self,
        weights: Mapping[int, Weights],
        heads: int,
        temperature: float,
        prompts: Prompts,
        version_RBT: Tensor,
    ) -> None:
        self.weights, self.temperature, self.version_RBT = weights, temperature, version_RBT
        self.length = prompts.token_RNQ.shape[2]
        first = {v: read_prompts(weights[v], heads, prompts) for v in self._present(0)}
        x_RDN = next(iter(first.values()))[0]
        R, B, T = version_RBT.shape
        own = x_RDN.new_empty(len(next(iter(weights.values())).layers), T, R, 3 * x_RDN.shape[1], B)
        read = {v: caches for v, (_, caches) in first.items()}
        self.kept = KeyValues(prompts_of_version(read, version_RBT[..., 0]), own)
        logp = {v: log_distribution(weights[v], x_RDN, temperature) for v, (x_RDN, _) in first.items()}
        spread = {v: logp_RVN.repeat_interleave(prompts.group, 2) for v, logp_RVN in logp.items()}
        self.first_RVB = of_version(spread, version_RBT[..., 0])

    def first(self) -> Tensor:
        """Return the distribution of the first token."""
        return self.first_RVB

    def after(self, token_RB: Tensor, t: int) -> Tensor:
        """Return the distribution of token t + 1, given token t; called for t = 0, 1, ... in order."""
        versions, version_RB = self._present(t + 1), self.version_RBT[..., t + 1]
        logp, own = {}, {}
        for v in versions:
            logp[v] = next_dist(self.weights[v], self.temperature, token_RB, self.length, t, self.kept)
            if len(versions) > 1:
                own[v] = self.kept.own[:, t].clone()
        if own:
            self.kept.own[:, t] = of_version(own, version_RB)
        return of_version(logp, version_RB)

    def _present(self, t: int) -> list[int]:
        """Return the versions that predict token t in any sequence."""
        if len(self.weights) == 1:
            return list(self.weights)
        return present(self.version_RBT[..., t])


def next_dist(
    weights: Weights, temperature: float, token_RB: Tensor, length: int, t: int, kept: KeyValues
) -> Tensor:
    """Return the distribution after own token t of a prompt of given length; keep its keys and values."""
    position_RD1 = weights.embedding[:, :, weights.head.shape[1] + length + t, None]
    (R, D, _), B = position_RD1.shape, token_RB.shape[1]
    x_RDB = weights.embedding.gather(2, token_RB[:, None].expand(R, D, B)) + position_RD1
    for i, layer in enumerate(weights.layers):
        own_TRIB, cache = kept.own[i, : t + 1], kept.prompts[i]
        if layer.rounding is unrounded and served(own_TRIB, cache):
            x_RDB = step_block(x_RDB, own_TRIB, cache, layer)
        else:
            layer.read(x_RDB, out=own_TRIB[t])
            x_RDB = finish_block(x_RDB, attend_step(own_TRIB, cache), layer)
    return log_distribution(weights, x_RDB, temperature)


def step_block(x_RDB: Tensor, own_TRIB: Tensor, cache: PromptCache, layer: Layer) -> Tensor:
    """Pass the newest own token through a block, compiled; store its queries, keys and values."""
    y_RDB, own_XB = torch.empty_like(x_RDB), own_TRIB.view(-1, x_RDB.shape[2])
    x, y, own, prompt, bias = (t.numpy() for t in (x_RDB, y_RDB, own_XB, cache.qkv, cache.bias))
    weights = tuple(w.numpy() for w in (layer.qkv, layer.out, layer.up, layer.down))
    compiled.step_loops().step(y, x, own, prompt, bias, weights, counts(own_TRIB, cache), np.float32(EPSILON))
    return y_RDB


def read_prompts(weights: Weights, heads: int, prompts: Prompts) -> tuple[Tensor, list[PromptCache]]:
    """Return the features of each prompt's last token [R, D, N] and every layer's cache."""
    _, N, Q = prompts.token_RNQ.shape
    tree = Tree(N, Q, 1, 0, prompts.first_RN)
    time_M = torch.arange(Q, device=prompts.token_RNQ.device).repeat_interleave(N)
    token_RM = prompts.token_RNQ.transpose(1, 2).flatten(1)
    x_RDM = embed(weights.embedding, token_RM, weights.head.shape[1] + time_M)
    caches = []
    for i, layer in enumerate(weights.layers):
        qkv_RIM = layer.read(x_RDM)
        caches.append(prompt_cache(qkv_RIM, prompts.first_RN, heads, Q, prompts.group))
        attended_RDM = tree_attention(qkv_RIM, tree, heads)
        if i == len(weights.layers) - 1:
            # Predictions of earlier tokens are never used.
            x_RDM, attended_RDM = x_RDM[:, :, -N:], attended_RDM[:, :, -N:]
        x_RDM = finish_block(x_RDM, attended_RDM, layer)
    return x_RDM, caches


def can_write(weights: Weights, heads: int) -> bool:
    """Return True if `write` supports these weights: float32 on the CPU, not rounded."""
    layer = weights.layers[0]
    return layer.rounding is unrounded and compiled.serves(layer.qkv) and layer.qkv.shape[2] // heads % 4 == 0


def write(
    weights: Weights,
    heads: int,
    temperature: float,
    prompts: Prompts,
    end_token: int | None,
    uniform_RBT: Tensor,
) -> Drawn:
    """Return what `sampler.generate` draws from one version, in one compiled pass per replica.

    Probabilities are float32, their sums float64.
    """
    x_RDN, caches = read_prompts(weights, heads, prompts)
    token_RBT = torch.zeros_like(uniform_RBT, dtype=torch.int64)
    mask_RBT = torch.zeros_like(token_RBT, dtype=torch.bool)
    logp_RBT = torch.zeros_like(uniform_RBT, dtype=x_RDN.dtype)
    logp_RVN = log_distribution(weights, x_RDN, temperature)
    tensors = (token_RBT, mask_RBT, logp_RBT, uniform_RBT, logp_RVN)
    layers = tuple(tuple(w.numpy() for w in (k.qkv, k.out, k.up, k.down)) for k in weights.layers)
    end = weights.head.shape[1] if end_token is None else end_token
    compiled.step_loops().generate(
        *(tensor.numpy() for tensor in tensors),
        tuple(cache.qkv.numpy() for cache in caches),
        caches[0].bias.numpy(),
        weights.embedding.numpy(),
        layers,
        weights.head.numpy(),
        (np.uint64(caches[0].length), np.uint64(heads), np.uint64(end)),
        (np.float32(temperature), np.float32(EPSILON)),
    )
    return token_RBT, mask_RBT, logp_RBT
