"""Choose the groups of a batch: join, pick, or replace them by groups of another origin."""

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from testbed.data.batch import EXPERT, ROLLOUT
from testbed.data.rollout import Rollout
from testbed.errors import UserError


def stack(rollouts: Sequence[Rollout]) -> Rollout:
    """Return rollouts joined along the replica axis."""
    joined: dict[str, Any] = {}
    for item in fields(Rollout):
        values = [getattr(rollout, item.name) for rollout in rollouts]
        joined[item.name] = torch.cat(values) if isinstance(values[0], Tensor) else values[0]
    return replace(rollouts[0], **joined)


def pick_groups(rollouts: Sequence[Rollout], index_RN: Tensor) -> Rollout:
    """Return chosen groups of several rollouts, concatenated along the axis of prompts.

    index_RN: int64; group n of replica r is number index_RN[r, n] of all groups, counted in order.
    """
    first = rollouts[0]
    member_G = torch.arange(first.group, device=index_RN.device)
    index_RB = (index_RN[..., None] * first.group + member_G).flatten(1)
    picked: dict[str, Any] = {}
    for item in fields(Rollout):
        values = [getattr(rollout, item.name) for rollout in rollouts]
        if isinstance(values[0], Tensor):
            joined = torch.cat(values, dim=1)
            index = index_RN if item.name == "prompt_RNQ" else index_RB
            picked[item.name] = joined.take_along_dim(index[(..., *[None] * (joined.dim() - 2))], dim=1)
    return replace(first, **picked)


def replace_groups(rollout: Rollout, other: Rollout, count: int, origin: int) -> Rollout:
    """Return the rollout with its last `count` groups replaced by the other's first, marked by origin."""
    prompts = rollout.prompt_RNQ.shape[1]
    if count > prompts:
        raise UserError(f"{count} groups were asked for, but a batch has {prompts}; raise `prompts`.")
    theirs = replace(other, origin_RB=torch.full_like(other.reward_RB, origin, dtype=torch.int64))
    index_N = torch.arange(prompts, device=rollout.prompt_RNQ.device)
    index_N[prompts - count :] = prompts + torch.arange(count, device=index_N.device)
    index_RN = index_N.expand(len(rollout.prompt_RNQ), prompts)
    return pick_groups([with_origin(rollout), theirs], index_RN)


def with_origin(rollout: Rollout) -> Rollout:
    """Return the rollout with every sequence's origin written out."""
    if rollout.origin_RB is not None:
        return rollout
    origin_RB = torch.full_like(rollout.reward_RB, ROLLOUT, dtype=torch.int64)
    return replace(rollout, origin_RB=origin_RB)


def groups_in(share: float, prompts: int) -> int:
    """Return the whole groups in a share of a batch: 58 of 100 in 0.58, of which the product is 57.99…."""
    return math.floor(share * prompts + 1e-9)


def demonstrate(rollout: Rollout, shown: Rollout, share: float) -> Rollout:
    """Return the rollout with the given share of its groups replaced by the teacher's answers."""
    count = groups_in(share, rollout.prompt_RNQ.shape[1])
    if not count:
        raise UserError(
            f"a share {share} of demonstrations of {rollout.prompt_RNQ.shape[1]} prompts is less than "
            "one group; raise `prompts`."
        )
    return replace_groups(rollout, shown, count, EXPERT)
