"""AsymRE: REINFORCE with a baseline below the mean of the group."""

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.data.groups import group_average, group_size
from testbed.objectives import objective


@objective(
    "asymre", source="Arnal et al. (2025), arXiv:2506.20520", on_policy=None, ratio="none",
    reads=("reward", "group"),
)  # fmt: skip
def asymre(logp_BT: Tensor, batch: Batch, *, shift: float = -0.1) -> Tensor:
    """L = -(R - (mean_group R + shift)) log pi.

    No ratio and no clip. A negative shift adds |shift| times the log-likelihood of the samples, a pull to the
    sampler. On fixed data a baseline at or above the sampler's value collapses to one response. A group of
    one has baseline 0, as in Trinity-RFT. The group's mean includes the sequence, so the shift acts G/(G-1)
    times as strongly as with the true value. shift = -0.1 is Trinity-RFT's; the paper's sweep could not be
    verified.
    """
    reward_B = batch.reward_B.to(torch.promote_types(batch.reward_B.dtype, torch.float32))
    alone_B = group_size(reward_B, batch.group_B) == 1
    baseline_B = (group_average(reward_B, batch.group_B) + shift).masked_fill(alone_B, 0.0)
    return -(reward_B - baseline_B).unsqueeze(-1) * logp_BT
