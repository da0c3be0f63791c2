"""Entropy from sampled tokens."""

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.errors import unknown
from testbed.losses.ratios import log_token
from testbed.objectives import objective


@objective(
    "entropy_bonus", source="Williams & Peng (1991), Connection Science 3(3), 241-268", ratio="none",
    reads=(), on_policy=None, detached=True,
)  # fmt: skip
def entropy_bonus(logp_BT: Tensor, batch: Batch, *, gradient: str = "score") -> Tensor:
    """L = sg[log pi] log pi; on samples of pi its expected gradient is that of -H(pi).

    gradient "pathwise" is a trap: log pi estimates -H(pi), but its expected gradient is 0, and on samples of
    another mu it drives pi away from mu. "importance" has the gradient of (pi/mu) log pi, which is unbiased
    on samples of mu. Stacks that see all logits need none of these. The paper could not be read.
    """
    if gradient == "score":
        # A weight of -inf at padding would turn the gradient's 0 there into NaN.
        return torch.where(batch.mask_BT, logp_BT.detach(), torch.zeros_like(logp_BT)) * logp_BT
    if gradient == "pathwise":
        return logp_BT
    if gradient == "importance":
        log_pi_BT = torch.where(batch.mask_BT, logp_BT.detach(), torch.zeros_like(logp_BT))
        return log_token(logp_BT.detach(), batch).exp() * (log_pi_BT + 1) * logp_BT
    raise unknown("gradient", gradient, ("score", "pathwise", "importance"))
