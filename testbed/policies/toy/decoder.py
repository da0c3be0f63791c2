"""Next-token laws one token after the other: prompts are read once, keys and values are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from testbed.policies.in_flight import present
from testbed.policies.toy.attention import Tree, tree_attention
from testbed.policies.toy.cache import PromptCache, attend_step, prompt_cache
from testbed.policies.toy.layers import Weights, embed, finish_block, log_distribution


class Decoder(Protocol):
    """What a sampler asks of a model: log-laws [R, V, B] of the next token of B responses."""

    def first(self) -> Tensor:
        """Return the law of the first token."""
        ...

    def after(self, token_RB: Tensor, t: int) -> Tensor:
        """Return the law of token t + 1, given token t; called for t = 0, 1, ... in order."""
        ...


@dataclass(frozen=True)
class Prompts:
    """Prompts with G responses each; first_RN is the index of each one's first token, behind its padding."""

    token_RNQ: Tensor
    first_RN: Tensor
    group: int


@dataclass(frozen=True)
class KeyValues:
    """Keys and values, layer by layer: of prompts, and of own tokens (stacked q, k, v [L, T, R, 3 D, B])."""

    prompts: Sequence[PromptCache]
    own: Tensor

    def attend(self, layer: int, t: int) -> Tensor:
        """Return the attention [R, D, B] of own token t to its prompt and to own tokens 0 to t."""
        return attend_step(self.own[layer, : t + 1], self.prompts[layer])


def of_version(part: Mapping[int, Tensor], version_RB: Tensor) -> Tensor:
    """Return for each response the part [..., R, X, B] of its version."""
    chosen, *others = part.items()
    value = chosen[1]
    for version, other in others:
        value = torch.where((version_RB == version)[:, None], other, value)
    return value


def prompts_of_version(read: Mapping[int, list[PromptCache]], version_RB: Tensor) -> list[PromptCache]:
    """Return for each layer the keys and values that each response's version has read of its prompt."""
    layers = zip(*read.values(), strict=True)
    parts = [dict(zip(read, (cache.key_value for cache in layer), strict=True)) for layer in layers]
    some = next(iter(read.values()))
    return [replace(c, key_value=of_version(p, version_RB)) for c, p in zip(some, parts, strict=True)]


class VersionedDecoder:
    """Each token's law under the weights of its own version; keys and values stay as they were made.

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
        laws = {v: log_distribution(weights[v], x_RDN, temperature) for v, (x_RDN, _) in first.items()}
        spread = {v: law_RVN.repeat_interleave(prompts.group, 2) for v, law_RVN in laws.items()}
        self.first_RVB = of_version(spread, version_RBT[..., 0])

    def first(self) -> Tensor:
        """Return the law of the first token."""
        return self.first_RVB

    def after(self, token_RB: Tensor, t: int) -> Tensor:
        """Return the law of token t + 1, given token t; called for t = 0, 1, ... in order."""
        versions, version_RB = self._present(t + 1), self.version_RBT[..., t + 1]
        laws, own = {}, {}
        for v in versions:
            laws[v] = next_law(self.weights[v], self.temperature, token_RB, self.length, t, self.kept)
            if len(versions) > 1:
                own[v] = self.kept.own[:, t].clone()
        if own:
            self.kept.own[:, t] = of_version(own, version_RB)
        return of_version(laws, version_RB)

    def _present(self, t: int) -> list[int]:
        """Return the versions that predict token t somewhere."""
        if len(self.weights) == 1:
            return list(self.weights)
        return present(self.version_RBT[..., t])


def next_law(
    weights: Weights, temperature: float, token_RB: Tensor, length: int, t: int, kept: KeyValues
) -> Tensor:
    """Return the law behind own token t of a prompt of so many tokens; keep its keys and values."""
    position_RD1 = weights.embedding[:, :, weights.head.shape[1] + length + t, None]
    (R, D, _), B = position_RD1.shape, token_RB.shape[1]
    x_RDB = weights.embedding.gather(2, token_RB[:, None].expand(R, D, B)) + position_RD1
    for i, layer in enumerate(weights.layers):
        layer.read(x_RDB, out=kept.own[i, t])
        x_RDB = finish_block(x_RDB, kept.attend(i, t), layer)
    return log_distribution(weights, x_RDB, temperature)


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
            # What earlier tokens predict is never asked.
            x_RDM, attended_RDM = x_RDM[:, :, -N:], attended_RDM[:, :, -N:]
        x_RDM = finish_block(x_RDM, attended_RDM, layer)
    return x_RDM, caches
