"""P3O: PPO on differences of rewards, invariant to rewards that depend only on the prompt."""

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.data.groups import group_size, group_sum
from testbed.errors import unknown
from testbed.losses.aggregate import spread
from testbed.losses.clipping import one_sided_clip
from testbed.losses.ratios import log_token
from testbed.objectives import objective
from testbed.objectives.preference.pairs import differences, unequal_pairs


def _separate(log_w_B: Tensor, batch: Batch, eps: float) -> Tensor:
    reward_B = batch.reward_B.to(log_w_B.dtype)
    size_B, total_B = group_size(reward_B, batch.group_B), group_sum(reward_B, batch.group_B)
    # R minus the mean of the others is the mean over the pairs of R - R'.
    gap_B = (size_B * reward_B - total_B) / (size_B - 1).clamp(min=1)
    loss_B = -one_sided_clip(log_w_B, gap_B, 1 - eps, 1 + eps) * gap_B
    return spread(loss_B.unsqueeze(-1), batch.mask_BT)


def _joint(log_w_B: Tensor, batch: Batch, eps: float) -> Tensor:
    pair_BB = unequal_pairs(batch)
    # An ignored pair must not overflow first.
    margin_BB = torch.where(pair_BB, differences(log_w_B), torch.zeros_like(log_w_B[..., None]))
    gap_BB = differences(batch.reward_B.to(log_w_B.dtype))
    loss_BB = -one_sided_clip(margin_BB, gap_BB, 1 - eps, 1 + eps) * gap_BB / 2
    loss_BB = torch.where(pair_BB, loss_BB, torch.zeros_like(loss_BB))
    others_B = (group_size(log_w_B, batch.group_B) - 1).clamp(min=1)
    loss_B = (loss_BB.sum(-1) + loss_BB.sum(-2)) / others_B
    return spread(loss_B.unsqueeze(-1), batch.mask_BT)


CLIPS = {"separate": _separate, "joint": _joint}


@objective(
    "p3o", source="Wu et al. (2023), arXiv:2310.00212, Eq. 6", on_policy=None, ratio="sequence",
    reads=("anchor", "reward", "group"), scope="sequence",
)  # fmt: skip
def p3o(logp_BT: Tensor, batch: Batch, *, eps: float = 0.2, clip: str = "separate") -> Tensor:
    """L = -(1/T) min(W D, clip(W, 1 - eps, 1 + eps) D), D = R - mean of the others, W = prod_t pi/anchor.

    On-policy this is the paper's pairwise gradient, (R - R') grad(log pi(y) - log pi(y')) / 2 averaged over
    the pairs of the group, which is RLOO. clip "separate" (V1) clips each ratio of a pair by itself; "joint"
    (V2) clips W / W' of winner over loser, with gap R - R'. The exact forms of both clips and eps could not
    be verified; these are our reading. In the paper a KL to the SFT model is part of the reward. Adding a
    constant to all rewards of a prompt changes nothing. A group of one has no loss. Spread evenly over the T
    tokens; aggregate with constant, length 1.
    """
    if clip not in CLIPS:
        raise unknown("clip of p3o", clip, CLIPS)
    return CLIPS[clip](log_token(logp_BT, batch, base="anchor").sum(-1), batch, eps)
