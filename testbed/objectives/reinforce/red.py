"""RED: REINFORCE on reshaped data, by weights or by dropping surplus negatives."""

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.data.groups import Packed, group_average, group_max, group_sum
from testbed.objectives import objective

SOURCE = "Yao et al. (2025), arXiv:2509.24203; yanxi-chen/Trinity-RFT 9051d637 2026-04-09"
ODD = (-7046029254386353131, -4658895280553007687, -7723592293110705685)
"""Odd 64-bit constants that spread bits: the golden ratio's, and those of the SplitMix64 generator."""


@objective(
    "red_weight", source=f"{SOURCE}, rec_policy_loss.py, weight 'advantage'", ratio="none", reads=("adv",),
    on_policy=None,
)  # fmt: skip
def red_weight(logp_BT: Tensor, batch: Batch, *, temp: float = 1.0) -> Tensor:
    """L = -exp(A/temp) A log pi.

    Not normalized, as in the authors' code: a batch of large advantages takes a larger step. Uses no ratio. A
    = R - group mean, aggregated with token_mean; temp to infinity gives reinforce.
    """
    adv_BT = batch.adv_BT.to(torch.promote_types(batch.adv_BT.dtype, torch.float32))
    return -(adv_BT / temp).exp() * adv_BT * logp_BT


def content_key(batch: Batch, seed: int) -> Tensor:
    """Return a pseudorandom number for every sequence, computed from its log mu alone; int64 [..., B].

    Every bit of each token's log-probability is hashed with the token's rank under the mask, and the hashes
    are added modulo 2^64: exact, so padding, order, precision and device change nothing.
    """
    rank_BT = batch.mask_BT.cumsum(-1)
    bits_BT = batch.logp_mu_BT.double().view(torch.int64)
    mixed_BT = _mix(bits_BT + rank_BT * ODD[0])
    total_B = torch.where(batch.mask_BT, mixed_BT, torch.zeros_like(mixed_BT)).sum(-1)
    return _mix(total_B + total_B.new_tensor(seed) * ODD[0])


def _mix(bits: Tensor) -> Tensor:
    # SplitMix64's finalizer; the mask after >> makes the signed shift a logical one.
    bits = (bits ^ ((bits >> 30) & (2**34 - 1))) * ODD[1]
    bits = (bits ^ ((bits >> 27) & (2**37 - 1))) * ODD[2]
    return bits ^ ((bits >> 31) & (2**33 - 1))


def kept_sequences(batch: Batch, seed: int) -> tuple[Tensor, Tensor]:
    """Return a mask of sequences to keep, bool [..., B], and the rewards in float32 at least."""
    reward_B = batch.reward_B.to(torch.promote_types(batch.reward_B.dtype, torch.float32))
    highest_B = group_max(reward_B, batch.group_B)
    slack_B = 1e-5 * (highest_B + group_max(-reward_B, batch.group_B))
    # Rounding may lift the mean above equal rewards; these must not become negatives.
    bar_B = torch.minimum(group_average(reward_B, batch.group_B) - slack_B, highest_B)
    good_B = reward_B >= bar_B
    key_B = content_key(batch, seed).masked_fill(good_B, torch.iinfo(torch.int64).min)
    packed = Packed.sorted_by(key_B, batch.group_B)
    # Positives come first in their group, then negatives in the order of their keys.
    place_B = packed.slot_B % packed.filled_NG.shape[-1]
    return good_B | (place_B < 2 * group_sum(good_B.long(), batch.group_B)), reward_B


def balanced(logp_BT: Tensor, batch: Batch, *, seed: int = 0) -> Tensor:
    """Return the tokens of the kept sequences; bool [..., B, T]."""
    return kept_sequences(batch, seed)[0][..., None].expand_as(logp_BT)


@objective(
    "red_drop", source=f"{SOURCE}, rec_advantage.py", ratio="none", reads=("mu", "reward", "group"),
    scope="group", on_policy=None, keep=balanced,
)  # fmt: skip
def red_drop(logp_BT: Tensor, batch: Batch, *, seed: int = 0) -> Tensor:
    """L = -M (R - mean of the group's kept R) log pi, M = 0 for random negatives beyond #positives.

    A negative has R < group mean; one at the mean counts as positive. A group with fewer negatives keeps all.
    Computes its advantage and ignores adv_BT; aggregate with token_mean. The dropped negatives look random
    but follow from log mu and `seed`: a sequence used twice is treated alike, and neither the order of the
    batch nor a split between groups matters.
    """
    kept_B, reward_B = kept_sequences(batch, seed)
    count_B = group_sum(kept_B.to(reward_B.dtype), batch.group_B)
    mean_B = group_sum(torch.where(kept_B, reward_B, torch.zeros_like(reward_B)), batch.group_B) / count_B
    return -torch.where(kept_B, reward_B - mean_B, torch.zeros_like(mean_B))[..., None] * logp_BT
