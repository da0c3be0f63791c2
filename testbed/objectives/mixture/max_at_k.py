"""The off-policy gradient of the best of k responses, max@k (pass@k with rewards 0 and 1)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.data.groups import Packed
from testbed.errors import unknown
from testbed.losses.ratios import log_token
from testbed.losses.subsets import log_binomial, log_sum_before
from testbed.objectives import objective


@objective(
    "max_at_k",
    source="Best of N Worlds (2025), arXiv:2510.23393; on-policy: PKPO (2025), arXiv:2505.15201",
    ratio="sequence",
    reads=("mu", "reward", "group"),
    scope="group",
    detached=True,
    penalty=True,
)
def max_at_k(
    logp_BT: Tensor, batch: Batch, *, k: int = 2, order: Literal["exact", "first"] = "exact"
) -> Tensor:
    """L = -sg[w] log pi, w_i = n/C(n,k) sum over k-subsets I with i of (prod over I of W) max over I of R.

    W = pi/mu of a sequence, n the responses in the group; the mean over sequences of token sums is
    unbiased for the gradient of E max of k responses (aggregation "constant" with length 1). k = 1 is
    importance_reinforce on raw rewards; W = 1 gives advantage max_at_k. order: "exact" is the whole sum,
    polynomial in n because subsets with a given maximum are counted by elementary symmetric polynomials;
    "first" is the paper's expansion to first order in W - 1. Weights are unbounded, computed in float64
    and scaled by group, so that only a result can overflow. A group with fewer than k responses is read
    with k = n. k = 2 is the smallest that differs from the mean, not the paper's; its clip, KL term and
    centering are left out. Memory O(n^2) per group.
    """
    if order not in ("exact", "first"):
        raise unknown("order", order, ("exact", "first"))
    log_w_B = log_token(logp_BT, batch).sum(-1).detach()
    packed = Packed.sorted_by(batch.reward_B, batch.group_B)
    reward_GN = packed.put(batch.reward_B.double(), 0.0)
    log_w_GN = packed.put(log_w_B.double(), -torch.inf)
    weights = exact_weights if order == "exact" else first_order_weights
    weight_B1 = packed.take(weights(log_w_GN, reward_GN, packed.size_G[..., None], k))[..., None].to(
        log_w_B.dtype
    )
    # Padding gets no share of a weight that may be infinite.
    return -torch.where(batch.mask_BT, weight_B1, torch.zeros_like(weight_B1)) * logp_BT


def exact_weights(log_w_GN: Tensor, reward_GN: Tensor, size_G1: Tensor, k: int) -> Tensor:
    """Return w of responses sorted by reward, from log-weights that are -inf in empty places.

    The subsets in which j is the last: W_j times the symmetric polynomial of degree k - 1 of those before
    j. For i < j, W_i W_j times the one of degree k - 2 of those before j without i.
    """
    count = log_w_GN.shape[-1]
    k_G1 = size_G1.clamp(max=k)
    itself = torch.eye(count, dtype=torch.bool, device=log_w_GN.device)
    others_GNN = log_w_GN[..., None, :].expand(*log_w_GN.shape, count).masked_fill(itself, -torch.inf)
    before_GN, without_GNN = torch.zeros_like(log_w_GN), torch.zeros_like(others_GNN)  # degree 0
    last_GN = torch.full_like(log_w_GN, -torch.inf)
    later_GNN = torch.full_like(others_GNN, -torch.inf)
    for degree in range(k):
        last_GN = torch.where(k_G1 - 1 == degree, before_GN, last_GN)
        later_GNN = torch.where(k_G1[..., None] - 2 == degree, without_GNN, later_GNN)
        before_GN = log_sum_before(log_w_GN + before_GN)
        without_GNN = log_sum_before(others_GNN + without_GNN)
    behind = torch.ones_like(itself).triu(1)
    log_GNN = torch.where(
        itself, last_GN[..., None, :], (later_GNN + log_w_GN[..., None, :]).masked_fill(~behind, -torch.inf)
    )
    log_GNN = (
        log_GNN + (log_w_GN + size_G1.clamp(min=1).double().log() - log_binomial(size_G1, k_G1))[..., None]
    )
    scale_GN1 = finite(log_GNN.amax(-1, keepdim=True))
    total_GN = ((log_GNN - scale_GN1).exp() * reward_GN[..., None, :]).sum(-1)
    return times_exp(total_GN, scale_GN1.squeeze(-1))


def first_order_weights(log_w_GN: Tensor, reward_GN: Tensor, size_G1: Tensor, k: int) -> Tensor:
    """Return w to first order in d = W - 1: prod over I of W read as 1 + sum over I of d.

    For j >= i, the C(j-2, k-2) subsets with i whose last is j (C(i-1, k-1) for j = i) have 1 + d_i + d_j
    in common; every other member of them is in C(j-3, k-3) (C(i-2, k-2)).
    """
    k_G1 = size_G1.clamp(max=k)
    scale_G1 = log_w_GN.amax(-1, keepdim=True).clamp(min=0)
    unit_G1 = (-scale_G1).exp()
    filled_GN = log_w_GN > -torch.inf
    shift_GN = torch.where(filled_GN, (log_w_GN - scale_G1).exp() - unit_G1, 0.0)
    below_GN = shift_GN.cumsum(-1) - shift_GN
    rank_N = torch.arange(1, log_w_GN.shape[-1] + 1, device=log_w_GN.device)
    log_share_G1 = size_G1.clamp(min=1).double().log() - log_binomial(size_G1, k_G1)

    def share(n: Tensor, chosen: int) -> Tensor:
        return (log_binomial(n, k_G1 - chosen) + log_share_G1).exp()

    own_GN = share(rank_N - 1, 1) * (unit_G1 + shift_GN) + share(rank_N - 2, 2) * below_GN
    pair_GNN = unit_G1[..., None] + shift_GN[..., :, None] + shift_GN[..., None, :]
    rest_GNN = below_GN[..., None, :] - shift_GN[..., :, None]
    shared_GNN = share(rank_N - 2, 2)[..., None, :] * pair_GNN + share(rank_N - 3, 3)[..., None, :] * rest_GNN
    total_GN = own_GN * reward_GN + (shared_GNN.triu(1) * reward_GN[..., None, :]).sum(-1)
    return times_exp(total_GN, scale_G1.expand(total_GN.shape))


def finite(log_value: Tensor) -> Tensor:
    """Return 0 for the logarithm of 0."""
    return torch.where(log_value == -torch.inf, torch.zeros_like(log_value), log_value)


def times_exp(value: Tensor, log_scale: Tensor) -> Tensor:
    """Return value * exp(log_scale); 0 stays 0, and the product overflows only where it is too large."""
    return value.sign() * (value.abs().log() + log_scale).exp()
