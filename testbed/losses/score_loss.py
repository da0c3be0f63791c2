"""The loss of every objective that weighs log pi with a constant."""

import torch
from torch import Tensor

from testbed.data.batch import Batch


def score_loss(weight_BT: Tensor, logp_BT: Tensor, batch: Batch) -> Tensor:
    """Return -sg[w] A log pi; a token without an advantage weighs nothing, even where w overflows."""
    weight_BT = torch.where(batch.adv_BT != 0, weight_BT.detach(), torch.zeros_like(weight_BT))
    return -weight_BT * batch.adv_BT * logp_BT
