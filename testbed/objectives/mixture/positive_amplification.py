"""R3L's positive amplification: weigh successes more than failures."""

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.objectives import objective


@objective(
    "positive_amplification", source="R3L, shiweijiezero/R3L d503f6c, docs/index.md, training objective",
    on_policy=None, ratio="none", reads=("adv", "reward"), sign=False, penalty=True,
)  # fmt: skip
def positive_amplification(
    logp_BT: Tensor, batch: Batch, *, alpha: float = 3.0, reward_max: float = 1.0
) -> Tensor:
    """L = -B log pi, B = alpha if R = R_max; alpha A if A > 0; A otherwise.

    A response with the task's largest reward weighs alpha in every group, even if all succeed and A = 0.
    Tokens before the pivot, shared by a retry and the attempt it corrects, are outside the mask. Aggregate
    with sequence_mean.
    """
    grown_BT = torch.where(batch.adv_BT > 0, alpha * batch.adv_BT, batch.adv_BT)
    best_B1 = (batch.reward_B >= reward_max).unsqueeze(-1)
    return -torch.where(best_B1, torch.full_like(grown_BT, alpha), grown_BT) * logp_BT


@objective.variant("positive_amplification@author", source="shiweijiezero/R3L d503f6c, opmd_advantage.py")
def positive_amplification_author(
    logp_BT: Tensor, batch: Batch, *, alpha: float = 3.0, reward_max: float = 1.0
) -> Tensor:
    """L = -B log pi, B = 1 if R >= R_max; alpha A if 0 <= A < 1; A otherwise.

    The document gives the best responses weight alpha, the code 1: a full success then weighs less than a
    partial one with A > 1/3, so amplification favors the partial ones.
    """
    partial_BT = (batch.adv_BT >= 0) & (batch.adv_BT < 1)
    grown_BT = torch.where(partial_BT, alpha * batch.adv_BT, batch.adv_BT)
    best_B1 = (batch.reward_B >= reward_max).unsqueeze(-1)
    return -torch.where(best_B1, torch.ones_like(grown_BT), grown_BT) * logp_BT
