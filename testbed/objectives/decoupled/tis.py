"""Truncated importance weights of a batch, normalized by their mean."""

import math
from typing import Any

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.batch_statistic import BatchStatistic
from testbed.objectives.decoupled.correction import capped


def capped_weights(logp_BT: Tensor, batch: Batch, *, level: str, **hyper: Any) -> Tensor:
    """Return log min(d, cap), -inf outside the mask: one per token, or one per sequence; [..., 1, K]."""
    log_h_BT = capped(logp_BT, batch, level=level, **hyper).masked_fill(~batch.mask_BT, -torch.inf)
    # A sequence has one weight, the same at all its tokens, so the maximum skips its padding.
    return log_h_BT.flatten(-2).unsqueeze(-2) if level == "token" else log_h_BT.amax(-1).unsqueeze(-2)


def log_mean_weight(log_h_1K: Tensor, **_: Any) -> Tensor:
    """Return the log of the mean weight; [...]; 0 where the mean is at most 1e-8, unchanged in verl."""
    count = (log_h_1K > -torch.inf).sum(-1).to(log_h_1K.dtype)
    log_mean = (log_h_1K.logsumexp(-1) - count.log()).squeeze(-1)
    return torch.where(log_mean > math.log(1e-8), log_mean, torch.zeros_like(log_mean))


MEAN_WEIGHT = BatchStatistic(capped_weights, log_mean_weight)


def normalized(logp_BT: Tensor, batch: Batch, *, level: str, cap: float, **_: Any) -> Tensor:
    """Return log min(d, cap), less the log of its mean over the batch."""
    log_mean = MEAN_WEIGHT(logp_BT, batch, level=level, cap=cap)[..., None, None]
    return capped(logp_BT, batch, level=level, cap=cap) - log_mean
