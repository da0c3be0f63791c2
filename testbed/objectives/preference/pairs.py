"""Pairs of sequences that answer the same prompt; [..., B, B] is (winner, loser)."""

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.data.groups import group_max, group_size, group_sum
from testbed.losses.aggregate import spread


def differences(value_B: Tensor) -> Tensor:
    """Return the winner's value minus the loser's; [..., B, B]."""
    return value_B.unsqueeze(-1) - value_B.unsqueeze(-2)


def unequal_pairs(batch: Batch) -> Tensor:
    """Return True for every pair of a group with unequal rewards, the larger one winning; [..., B, B]."""
    return (batch.group_B.unsqueeze(-1) == batch.group_B.unsqueeze(-2)) & (differences(batch.reward_B) > 0)


def extreme_pairs(batch: Batch) -> Tensor:
    """Return True for the best of a group against its worst, for all tied ones alike; [..., B, B]."""
    best_B = batch.reward_B == group_max(batch.reward_B, batch.group_B)
    worst_B = batch.reward_B == -group_max(-batch.reward_B, batch.group_B)
    return unequal_pairs(batch) & best_B.unsqueeze(-1) & worst_B.unsqueeze(-2)


def share_pairs(loss_BB: Tensor, pair_BB: Tensor, batch: Batch) -> Tensor:
    """Return per-token losses [..., B, T] from losses of pairs; values outside `pair_BB` are ignored.

    A sequence gets G / (2 P) times the losses of its pairs; P is the number of pairs in its group.
    A group without a pair has no loss.
    """
    loss_BB = torch.where(pair_BB, loss_BB, torch.zeros_like(loss_BB))
    own_B = loss_BB.sum(-1) + loss_BB.sum(-2)
    pairs_B = group_sum(pair_BB.sum(-1).to(own_B.dtype), batch.group_B)
    share_B = own_B * group_size(own_B, batch.group_B) / (2 * pairs_B).clamp(min=1)
    return spread(share_B.unsqueeze(-1), batch.mask_BT)
