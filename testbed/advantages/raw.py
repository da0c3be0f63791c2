"""The reward itself, shifted and scaled by constants."""

from __future__ import annotations

from torch import Tensor

from testbed.advantages import advantage


@advantage("raw", source="Williams (1992), Machine Learning 8, 229-256")
def raw(reward_B: Tensor, group_B: Tensor, *, baseline: float = 0.0, scale: float = 1.0) -> Tensor:
    """A = scale (R - baseline); baseline 0.5 and scale 2 turn rewards 0 and 1 into -1 and +1."""
    del group_B
    return scale * (reward_B - baseline)
