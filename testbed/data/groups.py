"""Sums, means and extremes over the sequences that answer the same prompt; all take and give [..., B]."""

from dataclasses import dataclass

import torch
from torch import Tensor


def group_sum(value_B: Tensor, group_B: Tensor) -> Tensor:
    """Return for every sequence the sum over its group."""
    totals = torch.zeros_like(value_B).scatter_add(-1, group_B, value_B)
    return totals.gather(-1, group_B)


def group_size(value_B: Tensor, group_B: Tensor) -> Tensor:
    """Return each sequence's group size, in the dtype of value_B."""
    return group_sum(torch.ones_like(value_B), group_B)


def group_average(value_B: Tensor, group_B: Tensor) -> Tensor:
    """Return for every sequence the mean over its group."""
    return group_sum(value_B, group_B) / group_size(value_B, group_B)


def group_max(value_B: Tensor, group_B: Tensor) -> Tensor:
    """Return for every sequence the largest value of its group."""
    lowest = torch.full_like(value_B, -torch.inf)
    return lowest.scatter_reduce(-1, group_B, value_B, "amax").gather(-1, group_B)


ROUNDING = 16
"""Values count as equal up to rounding if they differ by fewer ulps of the largest value."""


def group_centered(value_B: Tensor, group_B: Tensor) -> Tensor:
    """Return for every sequence its value minus the mean of its group.

    Exactly 0 in a group of equal values, also if they are sums separated by rounding (.2 + .4 and .6 + 0): a
    standardization would otherwise divide rounding by rounding, and give |A| near 1.
    """
    centered_B = value_B - group_average(value_B, group_B)
    return torch.where(_all_equal(value_B, group_B), 0.0, centered_B).to(value_B.dtype)


def _all_equal(value_B: Tensor, group_B: Tensor) -> Tensor:
    return are_equal(group_max(value_B, group_B), -group_max(-value_B, group_B))


def are_equal(high: Tensor, low: Tensor) -> Tensor:
    """Return True if the largest and the smallest of some values differ only by rounding."""
    scale = torch.maximum(high.abs(), low.abs())
    return high - low <= ROUNDING * torch.finfo(high.dtype).eps * scale


def group_weighted_average(value_B: Tensor, log_weight_B: Tensor, group_B: Tensor) -> Tensor:
    """Return sum w value / sum w over the group, from log-weights of any size.

    A group with all weights 0 is averaged with equal weights; in one of equal values each is its average.
    """
    top_B = group_max(log_weight_B, group_B)
    nothing_B = top_B == -torch.inf
    # -inf - -inf would be NaN; 0 gives all members of such a group the same weight.
    scaled_B = torch.where(nothing_B, torch.zeros_like(top_B), log_weight_B - top_B)
    weight_B = scaled_B.exp()
    average_B = group_sum(weight_B * value_B, group_B) / group_sum(weight_B, group_B)
    return torch.where(_all_equal(value_B, group_B), value_B, average_B)


def group_logmeanexp(value_B: Tensor, group_B: Tensor, temperature: float) -> Tensor:
    """Return temperature * log of the group's mean of exp(value / temperature).

    temperature 0 gives its limit, the largest value; infinity the mean. Never overflows.
    """
    top_B = group_max(value_B, group_B)
    if temperature == 0:
        return top_B
    if temperature == float("inf"):
        return group_average(value_B, group_B)
    mean_B = group_average(((value_B - top_B) / temperature).exp(), group_B)
    return top_B + temperature * mean_B.log()


def group_median(value_B: Tensor, group_B: Tensor) -> Tensor:
    """Return the median of each sequence's group; the mean of the two middle values for even sizes."""
    packed = Packed.sorted_by(value_B, group_B)
    value_NG = packed.put(value_B, 0.0)
    last_N1 = packed.size_N[..., None].clamp(min=1) - 1
    middle_N1 = 0.5 * (value_NG.gather(-1, last_N1 // 2) + value_NG.gather(-1, (last_N1 + 1) // 2))
    return packed.take(middle_N1.expand(value_NG.shape))


def group_weighted_quantile(value_B: Tensor, log_weight_B: Tensor, group_B: Tensor, q: float) -> Tensor:
    """Return the group's smallest value at which the cumulative weight reaches q of the total.

    In a group with all weights 0 every value counts equally.
    """
    packed = Packed.sorted_by(value_B, group_B)
    value_NG = packed.put(value_B, torch.inf)
    log_weight_NG = packed.put(log_weight_B.double(), -torch.inf)
    weightless_N1 = log_weight_NG.amax(-1, keepdim=True) == -torch.inf
    equal_NG = torch.zeros_like(log_weight_NG).masked_fill(~packed.filled_NG, -torch.inf)
    share_NG = torch.where(weightless_N1, equal_NG, log_weight_NG).softmax(-1)
    # A sum that should be exactly q may be smaller by rounding.
    reached_NG = share_NG.cumsum(-1) >= q - 1e-9
    chosen_N1 = torch.where(reached_NG, value_NG, torch.inf).amin(-1, keepdim=True)
    return packed.take(chosen_N1.expand(value_NG.shape))


@dataclass(frozen=True)
class Packed:
    """The groups side by side, [..., N, G]: N groups, G members of the largest, empty places last.

    slot_B: position of every sequence in [..., N * G]. filled_NG: bool, positions that hold a sequence.
    """

    slot_B: Tensor
    filled_NG: Tensor

    @classmethod
    def sorted_by(cls, key_B: Tensor, group_B: Tensor) -> "Packed":
        """Return the packing with every group sorted by a key, the lowest first."""
        # Two stable sorts: the second, by group, keeps the order of the keys inside each group.
        by_key_B = key_B.argsort(dim=-1, stable=True)
        by_group_B = group_B.gather(-1, by_key_B).argsort(dim=-1, stable=True)
        order_B = by_key_B.gather(-1, by_group_B)
        ordered_B = group_B.gather(-1, order_B)
        first_B = torch.ones_like(ordered_B, dtype=torch.bool)
        first_B[..., 1:] = ordered_B[..., 1:] != ordered_B[..., :-1]
        place_B = torch.arange(group_B.shape[-1], device=group_B.device).expand_as(group_B)
        begin_B = torch.where(first_B, place_B, torch.zeros_like(place_B)).cummax(-1).values
        row_B, rank_B = first_B.cumsum(-1) - 1, place_B - begin_B
        groups, members = int(row_B.max()) + 1, int(rank_B.max()) + 1
        slot_B = torch.empty_like(order_B).scatter(-1, order_B, row_B * members + rank_B)
        filled = torch.zeros(*group_B.shape[:-1], groups * members, dtype=torch.bool, device=group_B.device)
        filled.scatter_(-1, slot_B, True)
        return cls(slot_B, filled.unflatten(-1, (groups, members)))

    @property
    def size_N(self) -> Tensor:
        """Members of every group; 0 in replicas with fewer than N groups; int64 [..., N]."""
        return self.filled_NG.sum(-1)

    def put(self, value_B: Tensor, fill: float) -> Tensor:
        """Return values in their positions, `fill` in empty ones; [..., N, G]."""
        flat = torch.full_like(self.filled_NG.flatten(-2), fill, dtype=value_B.dtype)
        return flat.scatter(-1, self.slot_B, value_B).view_as(self.filled_NG)

    def take(self, value_NG: Tensor) -> Tensor:
        """Return every sequence's value; [..., B]."""
        return value_NG.flatten(-2).gather(-1, self.slot_B)
