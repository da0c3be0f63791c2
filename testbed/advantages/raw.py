"""The reward itself, shifted and scaled by constants, or only its failures (NSR)."""

import torch
from torch import Tensor

from testbed.advantages import advantage
from testbed.data.signals import Signals


@advantage("raw", source="Williams (1992), Machine Learning 8, 229-256", scope="sequence")
def raw(signals: Signals, *, baseline: float = 0.0, scale: float = 1.0) -> Tensor:
    """A = scale (R - baseline); baseline 0.5 and scale 2 turn rewards 0 and 1 into -1 and +1."""
    return scale * (signals.reward_B - baseline)


@advantage("nsr", source="Zhu et al. (2025), NSR, arXiv:2506.01347, Section 2.2", scope="sequence")
def nsr(signals: Signals, *, best: float = 1.0) -> Tensor:
    """A = -1 if R < best, else 0: nothing is learned from successes.

    best: the largest possible reward. The paper's reward is +1 or -1; it keeps only the latter.
    """
    return torch.where(signals.reward_B < best, -1.0, 0.0).to(signals.reward_B.dtype)
