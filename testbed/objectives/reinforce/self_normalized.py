"""REINFORCE with sequence weights divided by their mean over the batch."""

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.batch_statistic import BatchStatistic
from testbed.losses.ratios import log_sequence
from testbed.losses.score_loss import score_loss
from testbed.objectives import objective


def sequence_weights(logp_BT: Tensor, batch: Batch) -> Tensor:
    """log W of every sequence, and 1 if it has a token under the mask; [..., 2, B]."""
    there_B = batch.mask_BT.any(-1)
    log_w_B = torch.where(batch.mask_BT, log_sequence(logp_BT, batch), -torch.inf).amax(-1)
    return torch.stack([log_w_B, there_B.to(log_w_B.dtype)], dim=-2)


def log_mean_weight(pool_2B: Tensor) -> Tensor:
    """log of the mean weight, [...]; -inf where all are 0."""
    return pool_2B[..., 0, :].logsumexp(-1) - pool_2B[..., 1, :].sum(-1).log()


MEAN_WEIGHT = BatchStatistic(sequence_weights, log_mean_weight)


@objective(
    "self_normalized",
    source="Hesterberg (1995), Technometrics 37, weighted average importance sampling; on a policy gradient: "
    "Levine & Koltun (2013), Guided policy search, ICML",
    ratio="sequence",
    reads=("mu", "adv"),
    scope="batch",
    detached=True,
    statistic=MEAN_WEIGHT,
)
def self_normalized(logp_BT: Tensor, batch: Batch) -> Tensor:
    """L = -sg[W / mean_B W] A log pi, W = pi/mu of the sequence, the mean over the sequences of the batch.

    The weights of B sequences sum to B: none exceeds B, and a common factor, such as a wrong normalizer of
    mu, cancels. Consistent, with a bias of order 1/B; a single sequence has weight 1, which is REINFORCE on
    mu's data. If every W is 0 nothing is learned.
    """
    log_mean = MEAN_WEIGHT(logp_BT, batch)[..., None, None]
    log_share_BT = log_sequence(logp_BT, batch) - torch.where(torch.isinf(log_mean), 0.0, log_mean)
    # Padding has ratio 1, which divided by a small mean would be infinite.
    share_BT = torch.where(batch.mask_BT, log_share_BT, -torch.inf).exp()
    return score_loss(share_BT, logp_BT, batch)
