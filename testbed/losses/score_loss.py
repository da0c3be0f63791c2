"""The loss of every objective that weighs log pi by a detached weight."""

import torch
from torch import Tensor

from testbed.data.batch import Batch


def score_loss(weight_BT: Tensor, logp_BT: Tensor, batch: Batch) -> Tensor:
    """Return L = -sg[w] A log pi per token.

    Args:
        weight_BT: w [..., B, T]; detached here.
        logp_BT: log-probabilities [..., B, T] of the target policy, nats.
        batch: the data, with advantages A [..., B, T].

    Returns:
        Losses [..., B, T]; 0 where A = 0, even if w overflows.
    """
    weight_BT = torch.where(batch.adv_BT != 0, weight_BT.detach(), torch.zeros_like(weight_BT))
    return -weight_BT * batch.adv_BT * logp_BT
