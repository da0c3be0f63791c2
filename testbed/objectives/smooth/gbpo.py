"""BPO and GBPO: pull the ratio to a target on the edge of the band, from inside and from outside."""

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.data.groups import group_average, group_median, group_size
from testbed.losses.ratios import log_token
from testbed.objectives import objective

SOURCE = "Bounded ratio RL (2026), arXiv:2604.18578; bounded-ratio-rl/bounded_ratio_rl 64ff1cdf 2026-05-11"


def target_ratio(gap: Tensor, eps_low: float, eps_high: float, lam: float) -> Tensor:
    """Return u* = 1 - eps_low + (eps_low + eps_high) sigmoid(gap / lam): 1 at gap 0 for equal eps."""
    # Two terms that cancel exactly at gap 0, where a rounding error would give the weight a wrong sign.
    return 1 + (eps_high * torch.sigmoid(gap / lam) - eps_low * torch.sigmoid(-gap / lam))


def distance(logp_BT: Tensor, batch: Batch, target_BT: Tensor) -> Tensor:
    """Return |u - u*| |A|, u = pi/anchor."""
    log_u_BT = log_token(logp_BT, batch, base="anchor")
    # A token without an advantage has weight 0, even where u overflows.
    u_BT = torch.where(batch.adv_BT != 0, log_u_BT, torch.zeros_like(log_u_BT)).exp()
    return (u_BT - target_BT).abs() * batch.adv_BT.abs()


def median_gap(batch: Batch) -> Tensor:
    """Return R - median of its group, in float32 at least; [..., B]."""
    reward_B = batch.reward_B.to(torch.promote_types(batch.reward_B.dtype, torch.float32))
    return reward_B - group_median(reward_B, batch.group_B)


@objective("bpo", source=f"{SOURCE}, src/sb3/BPO.py", reads=("anchor", "adv"), sign=False)
def bpo(logp_BT: Tensor, batch: Batch, *, eps: float = 0.3, lam: float = 1e-3) -> Tensor:
    """L = |u - u*| |A|, u* = 1 - eps + 2 eps sigmoid(A / lam), u = pi/anchor.

    Inside the band the weight is PPO's, u A. Past its target a token is drawn back: the weight reverses,
    where PPO's is 0. The paper centers the sigmoid on a critic of the median and |A| on one of the mean; here
    both are adv_BT. eps and lam are those of its control tasks.
    """
    return distance(logp_BT, batch, target_ratio(batch.adv_BT, eps, eps, lam))


@objective(
    "gbpo", source=f"{SOURCE}, README and src/verl/trainer/ppo/core_algos.py",
    reads=("anchor", "adv", "reward", "group"), scope="group", on_policy=None, sign=False,
)  # fmt: skip
def gbpo(
    logp_BT: Tensor, batch: Batch, *, eps_low: float = 0.2, eps_high: float = 0.2, lam: float = 1e-4
) -> Tensor:
    """L = |u - u*| |A|, u* = 1 - eps_low + (eps_low + eps_high) sigmoid((R - median R) / lam), u = pi/anchor.

    Past its target a token is drawn back: the weight reverses. A sequence at its group's median has u* = 1
    and is held in place, so if most answers are right only the wrong ones move. For R above the median but
    below the mean, u* disagrees with the sign of A; only |A| is used. lam = 1e-4 is the scripts', a hard
    step; their eps range from 0.2 to 0.3. A = R - group mean; aggregate with token_mean.
    """
    target_B = target_ratio(median_gap(batch), eps_low, eps_high, lam)
    return distance(logp_BT, batch, target_B[..., None])


@objective.variant(
    "gbpo@author",
    source="bounded-ratio-rl/bounded_ratio_rl 64ff1cdf 2026-05-11, src/verl/trainer/ppo/core_algos.py",
)
def gbpo_author(
    logp_BT: Tensor, batch: Batch, *, eps_low: float = 0.2, eps_high: float = 0.2, lam: float = 1.0
) -> Tensor:
    """L = |u - u*| |A|, u* = gbpo's with (R - median R) / std R of the group, and lam = 1.

    The code's behavior with advantages divided by their std and the temperature of its configuration file,
    which the README omits: targets are soft, about 1.05 at half a std above the median, so most of the band
    is unused. The std is unbiased plus 1e-6; a group of one has 1.
    """
    gap_B = median_gap(batch)
    target_B = target_ratio(gap_B / group_std(batch, gap_B), eps_low, eps_high, lam)
    return distance(logp_BT, batch, target_B[..., None])


def group_std(batch: Batch, value_B: Tensor) -> Tensor:
    """Return the unbiased standard deviation of a group plus 1e-6, 1 for a group of one; [..., B]."""
    size_B = group_size(value_B, batch.group_B)
    square_B = (value_B - group_average(value_B, batch.group_B)).square()
    variance_B = group_average(square_B, batch.group_B) * size_B / (size_B - 1).clamp(min=1)
    return torch.where(size_B > 1, variance_B.sqrt() + 1e-6, torch.ones_like(size_B))
