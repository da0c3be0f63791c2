"""Advantages relative to the group of responses to the same prompt.

A group of one has no peers: group_mean and group_std give 0 there, leave_one_out uses baseline 0.
"""

from typing import Literal

import torch
from torch import Tensor

from testbed.advantages import advantage
from testbed.data.groups import Packed, group_centered, group_median, group_size, group_sum
from testbed.data.signals import Signals


@advantage("group_mean", source="Liu et al. (2025), Dr. GRPO, arXiv:2503.20783", scope="group")
def group_mean(signals: Signals) -> Tensor:
    """A = R - mean of the group."""
    return group_centered(signals.reward_B, signals.group_B)


@advantage("group_std", source="Shao et al. (2024), GRPO, arXiv:2402.03300, Section 4.1.2", scope="group")
def group_std(
    signals: Signals, *, std: Literal["unbiased", "population"] = "unbiased", eps: float = 1e-6
) -> Tensor:
    """A = (R - mean) / (std + eps) within the group.

    std: "unbiased" divides by G - 1 (verl, Trinity-RFT), "population" by G (VCPO's code). A is exactly 0 in a
    group of equal rewards. Public stacks do not ensure that: in float32 they give seven rewards of 10.1 an
    |A| of up to .8, because mean and std are then rounding error.
    """
    size_B = group_size(signals.reward_B, signals.group_B)
    centered_B = group_mean(signals)
    freedom_B = (size_B - (1 if std == "unbiased" else 0)).clamp(min=1)
    return centered_B / ((group_sum(centered_B**2, signals.group_B) / freedom_B).sqrt() + eps)


@advantage.variant("group_std@nemo-rl", source="NVIDIA-NeMo/RL 2026-08-22, nemo_rl/algorithms/utils.py")
def group_std_nemo_rl(signals: Signals, *, eps: float = 1e-6) -> Tensor:
    """A = (R - mean of the others) / (unbiased std of the others + eps); not divided where that std is 0.

    Unlike in the paper both moments exclude the response, so a group's advantages no longer sum to zero: the
    only success among failures is not scaled, while each failure is. With fewer than two others there is no
    std and no division; a group of one gets 0 (both are our reading). A std of at most eps counts as 0; the
    code compares with 0, where rounding decides.
    """
    packed = Packed.sorted_by(signals.reward_B, signals.group_B)
    reward_NG = packed.put(signals.reward_B.double(), 0.0)
    size_N1 = packed.size_N[..., None]
    mean_NG = (reward_NG.sum(-1, keepdim=True) - reward_NG) / (size_N1 - 1).clamp(min=1)
    # One difference per pair: sums of squares would cancel and leave a std for equal rewards.
    itself = torch.eye(reward_NG.shape[-1], dtype=torch.bool, device=reward_NG.device)
    gap_NGG = reward_NG[..., None, :] - mean_NG[..., None]
    gap_NGG = torch.where(packed.filled_NG[..., None, :] & ~itself, gap_NGG, 0.0)
    std_NG = (gap_NGG.square().sum(-1) / (size_N1 - 2).clamp(min=1)).sqrt()
    divisor_NG = torch.where(std_NG > eps, std_NG + eps, 1.0)
    adv_NG = torch.where(size_N1 > 1, (reward_NG - mean_NG) / divisor_NG, 0.0)
    return packed.take(adv_NG).to(signals.reward_B.dtype)


@advantage("leave_one_out", source="Ahmadian et al. (2024), RLOO, arXiv:2402.14740, Eq. 6", scope="group")
def leave_one_out(signals: Signals) -> Tensor:
    """A = R - mean of the others in the group = G/(G-1) (R - mean).

    A is exactly 0 in a group of equal rewards, of more than one response.
    """
    size_B = group_size(signals.reward_B, signals.group_B)
    others_B = (size_B - 1).clamp(min=1)
    total_B = group_sum(signals.reward_B, signals.group_B)
    adv_B = signals.reward_B - (total_B - signals.reward_B) / others_B
    # Adam divides by the gradient's size: it would take full steps along the rounding of equal rewards.
    return torch.where((size_B > 1) & (group_mean(signals) == 0), 0.0, adv_B).to(adv_B.dtype)


@advantage("group_median", source="GBPO (2026), arXiv:2604.18578", scope="group")
def median(signals: Signals) -> Tensor:
    """A = R - median of the group.

    GBPO compares scores with it to place its target ratio; |A| in its loss stays mean-based.
    """
    return signals.reward_B - group_median(signals.reward_B, signals.group_B)


@advantage("asymre", source="Arnal et al. (2025), AsymRE, arXiv:2506.20520", scope="group")
def asymre(signals: Signals, *, shift: float = -0.1) -> Tensor:
    """A = R - (mean of the group + shift).

    A negative shift keeps the baseline below the behavior policy's value, which the paper shows to be
    the stable side off-policy; shift 0 is group_mean. A group of one gets -shift.
    """
    return group_mean(signals) - shift


@advantage.variant("asymre@trinity", source="yanxi-chen/Trinity-RFT 2026-04-09, asymre_advantage.py")
def asymre_trinity(signals: Signals, *, shift: float = -0.1) -> Tensor:
    """A = R - (mean of the group + shift), R alone in a group of one.

    Unlike in the paper a group of one has baseline 0, so its response is pushed by its whole reward.
    """
    alone_B = group_size(signals.reward_B, signals.group_B) == 1
    return torch.where(alone_B, signals.reward_B, asymre(signals, shift=shift))


@advantage(
    "positive_amplified", source="R3L (2026), shiweijiezero/R3L, docs/index.md, d503f6c", scope="group"
)
def positive_amplified(signals: Signals, *, alpha: float = 3.0, best: float = 1.0) -> Tensor:
    """A = alpha if R >= best; else alpha (R - mean) if that is positive; else R - mean.

    best: the largest possible reward. From the authors' documentation; no paper could be verified.
    """
    return _amplified(signals, alpha, best, top=alpha)


@advantage.variant("positive_amplified@author", source="shiweijiezero/R3L d503f6c, opmd_advantage.py")
def positive_amplified_author(signals: Signals, *, alpha: float = 3.0, best: float = 1.0) -> Tensor:
    """A = 1 if R >= best; else alpha (R - mean) if that is positive; else R - mean.

    Unlike in the documentation the best responses are not amplified, so a response just below the best can
    weigh more.
    """
    return _amplified(signals, alpha, best, top=1.0)


def _amplified(signals: Signals, alpha: float, best: float, top: float) -> Tensor:
    plain_B = group_mean(signals)
    raised_B = torch.where(plain_B > 0, alpha * plain_B, plain_B)
    return torch.where(signals.reward_B >= best, torch.full_like(plain_B, top), raised_B)
