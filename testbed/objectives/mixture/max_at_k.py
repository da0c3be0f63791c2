"""The off-policy gradient of the best of k responses, max@k (pass@k with rewards 0 and 1)."""

from typing import Literal

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.data.groups import Packed
from testbed.errors import UserError, unknown
from testbed.losses.ratios import log_token
from testbed.losses.subsets import log_binomial, log_sum_before
from testbed.objectives import objective


@objective(
    "max_at_k",
    source="Best of N Worlds (2025), arXiv:2510.23393; on-policy: PKPO (2025), arXiv:2505.15201",
    on_policy=None, ratio="sequence", reads=("mu", "reward", "group"), scope="group", detached=True,
    penalty=True,
)  # fmt: skip
def max_at_k(
    logp_BT: Tensor, batch: Batch, *, k: int = 2, order: Literal["exact", "first"] = "exact"
) -> Tensor:
    """L = -sg[w] log pi, w_i = n/C(n,k) sum over k-subsets I with i of (prod over I of W) max over I of R.

    W = pi/mu of a sequence, n the responses in the group; the mean over sequences of token sums is unbiased
    for the gradient of E max of k responses (aggregation "constant" with length 1). k = 1 is
    importance_reinforce on raw rewards; W = 1 gives advantage max_at_k. order: "exact" is the whole sum,
    polynomial in n because elementary symmetric polynomials count the subsets with a given maximum; "first"
    is the paper's expansion to first order in W - 1. Weights are unbounded, computed in float64 and scaled by
    group, so only a result can overflow. A group with fewer than k responses uses k = n. k = 2 is the
    smallest that differs from the mean, not the paper's; the paper's clip, KL term and centering are omitted.
    Memory O(n^2) per group.
    """
    if order not in ("exact", "first"):
        raise unknown("order", order, ("exact", "first"))
    if k < 1:
        raise UserError(f"k of max_at_k is {k}, expected at least 1 response to take the best of.")
    log_w_B = log_token(logp_BT, batch).sum(-1).detach()
    packed = Packed.sorted_by(batch.reward_B, batch.group_B)
    reward_NG = packed.put(batch.reward_B.double(), 0.0)
    log_w_NG = packed.put(log_w_B.double(), -torch.inf)
    weights = exact_weights if order == "exact" else first_order_weights
    weight_B = packed.take(weights(log_w_NG, reward_NG, packed.size_N[..., None], k))
    weight_B1 = weight_B[..., None].to(log_w_B.dtype)
    # Padding gets no share of a weight that may be infinite.
    return -torch.where(batch.mask_BT, weight_B1, torch.zeros_like(weight_B1)) * logp_BT


def exact_weights(log_w_NG: Tensor, reward_NG: Tensor, size_N1: Tensor, k: int) -> Tensor:
    """Return w of responses sorted by reward, from log-weights that are -inf in empty places.

    The subsets with last element j contribute W_j times the symmetric polynomial of degree k - 1 of those
    before j. For i < j it is W_i W_j times that of degree k - 2 of those before j without i.
    """
    count = log_w_NG.shape[-1]
    k_N1 = size_N1.clamp(max=k)
    itself = torch.eye(count, dtype=torch.bool, device=log_w_NG.device)
    others_NGG = log_w_NG[..., None, :].expand(*log_w_NG.shape, count).masked_fill(itself, -torch.inf)
    before_NG, without_NGG = torch.zeros_like(log_w_NG), torch.zeros_like(others_NGG)  # degree 0
    last_NG = torch.full_like(log_w_NG, -torch.inf)
    later_NGG = torch.full_like(others_NGG, -torch.inf)
    for degree in range(k):
        last_NG = torch.where(k_N1 - 1 == degree, before_NG, last_NG)
        later_NGG = torch.where(k_N1[..., None] - 2 == degree, without_NGG, later_NGG)
        before_NG = log_sum_before(log_w_NG + before_NG)
        without_NGG = log_sum_before(others_NGG + without_NGG)
    behind = torch.ones_like(itself).triu(1)
    later_NGG = (later_NGG + log_w_NG[..., None, :]).masked_fill(~behind, -torch.inf)
    log_NGG = torch.where(itself, last_NG[..., None, :], later_NGG)
    scale_NG = log_w_NG + size_N1.clamp(min=1).double().log() - log_binomial(size_N1, k_N1)
    log_NGG = log_NGG + scale_NG[..., None]
    scale_NG1 = finite(log_NGG.amax(-1, keepdim=True))
    total_NG = ((log_NGG - scale_NG1).exp() * reward_NG[..., None, :]).sum(-1)
    return times_exp(total_NG, scale_NG1.squeeze(-1))


def first_order_weights(log_w_NG: Tensor, reward_NG: Tensor, size_N1: Tensor, k: int) -> Tensor:
    """Return w to first order in d = W - 1: prod over I of W becomes 1 + sum over I of d.

    For j >= i, the C(j-2, k-2) subsets with i and last element j (C(i-1, k-1) for j = i) share 1 + d_i + d_j;
    every other member is in C(j-3, k-3) of them (C(i-2, k-2)).
    """
    k_N1 = size_N1.clamp(max=k)
    # The 1 in 1 + sum d is scaled too, to exp(-scale), so the scale is at least that of W = 1.
    scale_N1 = log_w_NG.amax(-1, keepdim=True).clamp(min=0)
    unit_N1 = (-scale_N1).exp()
    filled_NG = log_w_NG > -torch.inf
    shift_NG = torch.where(filled_NG, (log_w_NG - scale_N1).exp() - unit_N1, 0.0)
    below_NG = shift_NG.cumsum(-1) - shift_NG
    rank_G = torch.arange(1, log_w_NG.shape[-1] + 1, device=log_w_NG.device)
    log_share_N1 = size_N1.clamp(min=1).double().log() - log_binomial(size_N1, k_N1)

    def share(n: Tensor, chosen: int) -> Tensor:
        return (log_binomial(n, k_N1 - chosen) + log_share_N1).exp()

    own_NG = share(rank_G - 1, 1) * (unit_N1 + shift_NG) + share(rank_G - 2, 2) * below_NG
    pair_NGG = unit_N1[..., None] + shift_NG[..., :, None] + shift_NG[..., None, :]
    rest_NGG = below_NG[..., None, :] - shift_NG[..., :, None]
    shared_NGG = share(rank_G - 2, 2)[..., None, :] * pair_NGG + share(rank_G - 3, 3)[..., None, :] * rest_NGG
    total_NG = own_NG * reward_NG + (shared_NGG.triu(1) * reward_NG[..., None, :]).sum(-1)
    return times_exp(total_NG, scale_N1.expand(total_NG.shape))


def finite(log_value: Tensor) -> Tensor:
    """Return 0 for the logarithm of 0."""
    return torch.where(log_value == -torch.inf, torch.zeros_like(log_value), log_value)


def times_exp(value: Tensor, log_scale: Tensor) -> Tensor:
    """Return value * exp(log_scale); 0 stays 0, and the product overflows only where it is too large."""
    return value.sign() * (value.abs().log() + log_scale).exp()
