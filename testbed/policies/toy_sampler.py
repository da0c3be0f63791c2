"""Generation token by token: prompts are read once, tokens are drawn by inverse CDF from given uniforms."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from testbed.policies.toy_attention import Tree, tree_attention
from testbed.policies.toy_cache import PromptCache, attend_step, prompt_cache
from testbed.policies.toy_layers import Weights, embed, finish_block, log_law, normalize


def inverse_cdf(log_law_RVB: Tensor, uniform_RB: Tensor) -> Tensor:
    """Return the tokens [R, B] at which the cumulative law c passes each uniform u in [0, 1).

    Token v is drawn when c[v-1] <= u c[V-1] < c[v], in float64, so a token without mass is never drawn. The
    threshold is held below the total: even u = 1 draws a token, the last with mass.
    Where the law is NaN the token is 0 and its log-probability NaN: a diverged model is a result.
    """
    cumulative_RVB = log_law_RVB.double().exp().cumsum(1)
    total_RB = cumulative_RVB[:, -1]
    below_RB = torch.nextafter(total_RB, torch.zeros_like(total_RB))
    threshold_RB = torch.minimum(uniform_RB * total_RB, below_RB)
    return (cumulative_RVB <= threshold_RB[:, None]).sum(1)


def generate(
    weights: Weights,
    heads: int,
    temperature: float,
    end_token: int | None,
    prompt_RNK: Tensor,
    first_RN: Tensor,
    uniform_RBT: Tensor,
    greedy: bool = False,
    law: Callable[[Tensor, int], Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return token_RBT, mask_RBT and logp_RBT, B / N responses to each prompt.

    law: what an engine makes of the log-law [R, V, B] at time t, before a token is drawn from it.
    Behind a response's end token: token 0, mask False, logp 0.
    """
    (R, B, T), (_, N, K) = uniform_RBT.shape, prompt_RNK.shape
    x_RDB, caches = read_prompts(weights, heads, prompt_RNK, first_RN)
    D, V = x_RDB.shape[1], weights.head.shape[1]
    token_RBT = prompt_RNK.new_zeros(R, B, T)
    logp_RBT = x_RDB.new_zeros(R, B, T)
    mask_RBT = torch.zeros_like(token_RBT, dtype=torch.bool)
    alive_RB = torch.ones_like(mask_RBT[..., 0])
    own = x_RDB.new_empty(len(caches), T, R, 3 * D, B)
    law_RVB = log_law(weights, x_RDB, temperature).repeat_interleave(B // N, 2)
    for t in range(T):
        if law is not None:
            law_RVB = law(law_RVB, t)
        drawn_RB = law_RVB.argmax(1) if greedy else inverse_cdf(law_RVB, uniform_RBT[..., t])
        token_RBT[..., t] = drawn_RB.where(alive_RB, 0)
        logp_RBT[..., t] = law_RVB.gather(1, drawn_RB[:, None])[:, 0].where(alive_RB, 0.0)
        mask_RBT[..., t] = alive_RB
        if end_token is not None:
            alive_RB = alive_RB & (drawn_RB != end_token)
        if t == T - 1 or not alive_RB.any():
            break
        x_RDB = weights.embedding.gather(2, drawn_RB[:, None].expand(R, D, B))
        x_RDB = x_RDB + weights.embedding[:, :, V + K + t, None]
        for layer, cache, own_TRCB in zip(weights.layers, caches, own, strict=True):
            torch.bmm(layer.qkv, normalize(x_RDB), out=own_TRCB[t])
            x_RDB = finish_block(x_RDB, attend_step(own_TRCB[: t + 1], cache), layer)
        law_RVB = log_law(weights, x_RDB, temperature)
    return token_RBT, mask_RBT, logp_RBT


def read_prompts(
    weights: Weights, heads: int, prompt_RNK: Tensor, first_RN: Tensor
) -> tuple[Tensor, list[PromptCache]]:
    """Return the features of each prompt's last token [R, D, N] and every layer's cache."""
    _, N, K = prompt_RNK.shape
    tree = Tree(N, K, 1, 0, first_RN)
    column_M = weights.head.shape[1] + torch.arange(K, device=prompt_RNK.device).repeat_interleave(N)
    x_RDM = embed(weights.embedding, prompt_RNK.transpose(1, 2).flatten(1), column_M)
    caches = []
    for i, layer in enumerate(weights.layers):
        qkv_RCM = torch.bmm(layer.qkv, normalize(x_RDM))
        caches.append(prompt_cache(qkv_RCM, first_RN, heads, K))
        attended_RDM = tree_attention(qkv_RCM, tree, heads)
        if i == len(weights.layers) - 1:
            # What earlier tokens predict is never asked.
            x_RDM, attended_RDM = x_RDM[:, :, -N:], attended_RDM[:, :, -N:]
        x_RDM = finish_block(x_RDM, attended_RDM, layer)
    return x_RDM, caches
