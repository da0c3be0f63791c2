"""Shares of a batch by origin, for averaging each part separately."""

import torch
from torch import Tensor

from testbed.data.batch import EXPERT, REPLAY, ROLLOUT, Batch
from testbed.losses.batch_statistic import BatchStatistic

ORIGINS = (ROLLOUT, EXPERT, REPLAY)


def count_tokens(_logp_BT: Tensor, batch: Batch, **_: object) -> Tensor:
    """Return each sequence's token count in the row of its origin, 0 in the other rows; [..., 3, B]."""
    origin_B = batch.require("origin_B", "a mixture of origins")
    each_K1 = torch.tensor(ORIGINS, device=origin_B.device).unsqueeze(-1)
    length_B = batch.mask_BT.sum(-1).double()
    return (origin_B.unsqueeze(-2) == each_K1) * length_B.unsqueeze(-2)


def share_of_tokens(count_KX: Tensor, **_: object) -> Tensor:
    """Return the share of the tokens that each of ORIGINS has; [..., 3].

    Divide losses of a part by its share: token_mean over the batch then averages over the part.
    """
    count_K = count_KX.sum(-1)
    return count_K / count_K.sum(-1, keepdim=True)


SHARES = BatchStatistic(count_tokens, share_of_tokens)
