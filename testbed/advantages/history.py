"""Baselines that remember earlier batches."""

import torch
from torch import Tensor

from testbed.advantages import advantage
from testbed.data.groups import group_average
from testbed.data.signals import Signals

SPEAR = "Qin et al. (2025), SPEAR, arXiv:2509.22601"


@advantage("median_of_history", source=SPEAR, needs=("history_K",), scope="group")
def median_of_history(signals: Signals) -> Tensor:
    """A = R - P50 of the history of group baselines.

    P50 of an even number is the mean of the two middle ones. While the history is empty (all NaN) the
    baseline is the mean of the group. The authors keep the last 10 240 baselines.
    """
    return _above_median(signals, "median_of_history")


@advantage("recalibrated", source=SPEAR, needs=("history_K",), scope="group")
def recalibrated(signals: Signals) -> Tensor:
    """A = max(0, R - P50 of the history of group baselines).

    For replayed successes: a response that was good when stored may be ordinary by now. Responses below the
    baseline drop out. The authors' code can also divide by a std, which is off here.
    """
    return _above_median(signals, "recalibrated").clamp(min=0)


def _above_median(signals: Signals, method: str) -> Tensor:
    dtype = torch.promote_types(signals.reward_B.dtype, torch.float32)
    history_K = signals.require("history_K", method).to(dtype)
    median_1 = history_K.nanquantile(0.5, dim=-1, keepdim=True).to(signals.reward_B.dtype)
    own_B = group_average(signals.reward_B, signals.group_B)
    return signals.reward_B - torch.where(median_1.isnan(), own_B, median_1)
