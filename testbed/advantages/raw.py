"""The reward itself, shifted and scaled by constants."""

from __future__ import annotations

from torch import Tensor

from testbed.advantages import advantage
from testbed.data.signals import Signals


@advantage("raw", source="Williams (1992), Machine Learning 8, 229-256", scope="sequence")
def raw(signals: Signals, *, baseline: float = 0.0, scale: float = 1.0) -> Tensor:
    """A = scale (R - baseline); baseline 0.5 and scale 2 turn rewards 0 and 1 into -1 and +1."""
    return scale * (signals.reward_B - baseline)
