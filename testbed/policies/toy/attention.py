"""Attention over a tree: a prompt and its whole group in one pass, for training and for reading prompts.

The M tokens of a replica are the columns of a matrix of features, in this order: the prompts' tokens slot by
slot (token k of prompt 0, of prompt 1, ...), then for each prompt its responses slot by slot (token s of
response 0, of response 1, ...). A prompt's token sees its prompt up to itself; a response's token sees its
prompt and its response up to itself.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention

from testbed.policies.toy import compiled


@dataclass(frozen=True)
class Tree:
    """Layout of the columns: N prompts of Q tokens, G responses of S tokens to each.

    first_RN: index of each prompt's first token that is not padding.
    """

    prompts: int
    length: int
    group: int
    slots: int
    first_RN: Tensor

    def visible(self) -> Tensor:
        """Return the attention mask, bool [R, N, M, M], among the M = Q + S G tokens of a prompt's tree.

        Padding sees itself, so that no row is empty; no other token sees it.
        """
        Q, S, G, device = self.length, self.slots, self.group, self.first_RN.device
        prompt_Q, slot_S = torch.arange(Q, device=device), torch.arange(S, device=device)
        branch_M = torch.cat([torch.full_like(prompt_Q, -1), torch.arange(G, device=device).repeat(S)])
        time_M = torch.cat([prompt_Q, Q + slot_S.repeat_interleave(G)])
        kin_MM = (branch_M == -1) | (branch_M == branch_M[:, None])
        past_MM = time_M <= time_M[:, None]
        real_RN1M = (time_M >= self.first_RN[..., None])[..., None, :]
        itself_MM = torch.eye(Q + S * G, dtype=torch.bool, device=device)
        return (kin_MM & past_MM & real_RN1M) | itself_MM


HIDDEN = -1e30
"""Score of a hidden token; finite, so that a row of hidden tokens is not NaN."""


def tree_attention(qkv_RIM: Tensor, tree: Tree, heads: int) -> Tensor:
    """softmax(q k / sqrt(head width)) v over visible tokens, [R, D, M], from stacked q, k, v [R, 3 D, M]."""
    if compiled.serves(qkv_RIM) and qkv_RIM.shape[1] // (3 * heads) % 4 == 0:
        attended_RDM: Tensor = CompiledTreeAttention.apply(qkv_RIM, tree, heads)
        return attended_RDM
    return dense_tree_attention(qkv_RIM, tree, heads)


def dense_tree_attention(qkv_RIM: Tensor, tree: Tree, heads: int) -> Tensor:
    """The same with torch alone, for any device and type: a masked score for every pair of a tree."""
    N, Q = tree.prompts, tree.length
    parts_RIM = qkv_RIM.unflatten(1, (3, heads, -1))
    prompt = parts_RIM[..., : N * Q].unflatten(-1, (Q, N)).transpose(-1, -2)
    response = parts_RIM[..., N * Q :].unflatten(-1, (N, tree.slots * tree.group))
    q, k, v = torch.cat([prompt, response], -1).permute(1, 0, 4, 2, 5, 3).flatten(1, 2)
    mask = tree.visible().flatten(0, 1)[:, None]
    attended = scaled_dot_product_attention(q, k, v, attn_mask=mask).unflatten(0, (-1, N))
    attended_RDNM = attended.permute(0, 2, 4, 1, 3).flatten(1, 2)
    prompt_RDM = attended_RDNM[..., :Q].transpose(-1, -2).flatten(2)
    return torch.cat([prompt_RDM, attended_RDNM[..., Q:].flatten(2)], -1)


class CompiledTreeAttention(torch.autograd.Function):
    """Tree attention in compiled loops; keeps the probabilities of visible pairs for the gradient."""

    @staticmethod
    def forward(ctx: Any, qkv_RIM: Tensor, tree: Tree, heads: int) -> Tensor:
        R, rows, M = qkv_RIM.shape
        N, Q, S, X = tree.prompts, tree.length, tree.slots, tree.slots * tree.group
        attended_RDM = qkv_RIM.new_empty(R, rows // 3, M)
        prompt_p = qkv_RIM.new_empty(R, heads, -(-Q * N // 8) * Q, 8)
        response_p = qkv_RIM.new_empty(R, heads, N * -(-X // 8) * (S + Q), 8)
        saved = (qkv_RIM.contiguous(), attended_RDM, prompt_p, response_p)
        qkv, *outputs = (t.detach().numpy() for t in saved)
        counts = (np.uint64(Q), np.uint64(S), np.uint64(tree.group))
        ctx.tree = tree.first_RN.numpy().astype(np.uint64), counts
        compiled.attention_loops().tree_forward(qkv, ctx.tree[0], *outputs, ctx.tree[1])
        ctx.save_for_backward(*saved)
        return attended_RDM

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_RDM: Tensor) -> tuple[Tensor, None, None]:
        grad_RIM = torch.empty_like(ctx.saved_tensors[0])
        arrays = (t.detach().numpy() for t in (grad_RIM, g_RDM.contiguous(), *ctx.saved_tensors))
        compiled.attention_loops().tree_backward(*arrays, *ctx.tree)
        return grad_RIM, None, None
