"""Advantages for the best of k responses, max@k; with rewards 0 and 1 that is pass@k."""

from typing import Literal

import torch
from torch import Tensor

from testbed.advantages import advantage
from testbed.advantages.grouped import group_std
from testbed.data.groups import Packed, group_centered, group_size, group_sum
from testbed.data.signals import Signals
from testbed.errors import UserError, unknown
from testbed.losses.subsets import log_binomial


@advantage(
    "max_at_k",
    source="Walder & Karkhanis (2025), PKPO, arXiv:2505.15201; Best of N Worlds (2025), arXiv:2510.23393",
    scope="group",
)
def max_at_k(
    signals: Signals, *, k: int = 2, center: Literal["none", "mean", "standard"] = "none", eps: float = 1e-6
) -> Tensor:
    """A = n / C(n, k) (C(i-1, k-1) R_i + sum over j > i of C(j-2, k-2) R_j), R sorted upwards, i the rank.

    Then the mean over sequences of A grad log pi is unbiased for the gradient of E max of k responses,
    on-policy; k = 1 gives R. center: "mean" subtracts the group's mean of A, "standard" also divides by its
    unbiased std + eps; this baseline includes the response. A group with fewer than k responses uses k = n.
    Weights are computed in float64. k = 2 is the smallest that differs from the mean, not a default of the
    papers.
    """
    if k < 1:
        raise UserError(f"k of max_at_k is {k}, expected at least 1 response to take the best of.")
    packed = Packed.sorted_by(signals.reward_B, signals.group_B)
    reward_NG = packed.put(signals.reward_B.double(), 0.0)
    size_N1 = packed.size_N[..., None]
    k_N1 = size_N1.clamp(max=k)
    rank_G = torch.arange(1, reward_NG.shape[-1] + 1, device=reward_NG.device)
    # n / C(n, k) first: a binomial coefficient alone can overflow.
    log_share_N1 = size_N1.clamp(min=1).double().log() - log_binomial(size_N1, k_N1)
    own_NG = (log_binomial(rank_G - 1, k_N1 - 1) + log_share_N1).exp() * reward_NG
    shared_NG = (log_binomial(rank_G - 2, k_N1 - 2) + log_share_N1).exp() * reward_NG
    above_NG = shared_NG.flip(-1).cumsum(-1).flip(-1) - shared_NG
    adv_B = packed.take(own_NG + above_NG).to(signals.reward_B.dtype)
    if center == "none":
        return adv_B
    if center == "mean":
        return group_centered(adv_B, signals.group_B)
    if center == "standard":
        return group_std(Signals(adv_B, signals.group_B), eps=eps)
    raise unknown("center", center, ("none", "mean", "standard"))


@advantage.variant("max_at_k@verl", source="verl-project/verl 1dda039b 2026-08-22, core_algos.py, grpo_passk")
def max_at_k_verl(signals: Signals, *, std: bool = True, eps: float = 1e-6) -> Tensor:
    """A = (R - second largest R) / (std + eps) for the best of the group, 0 for the others.

    Unlike max@k only the best response learns, by its margin over the next, and k does not appear; two that
    tie at the top learn nothing. std: False omits the division by the group's unbiased std. A group of one
    gets 0 (verl refuses it).
    """
    packed = Packed.sorted_by(signals.reward_B, signals.group_B)
    reward_NG = packed.put(signals.reward_B, 0.0)
    gap_NG = torch.cat([torch.zeros_like(reward_NG[..., :1]), reward_NG.diff(dim=-1)], dim=-1)
    place_G = torch.arange(reward_NG.shape[-1], device=reward_NG.device)
    best_NG = place_G == packed.size_N[..., None] - 1
    adv_B = packed.take(torch.where(best_NG, gap_NG, 0.0))
    if not std:
        return adv_B
    centered_B = group_centered(signals.reward_B, signals.group_B)
    freedom_B = (group_size(adv_B, signals.group_B) - 1).clamp(min=1)
    return adv_B / ((group_sum(centered_B**2, signals.group_B) / freedom_B).sqrt() + eps)
