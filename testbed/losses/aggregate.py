"""Reduce per-token losses to one scalar per replica. This is the only module that divides a loss.

A mean over sequences skips rows without a token under the mask (verl's geo_mean counts them, its other modes
do not). If no token is left, the loss is 0 with gradient 0. Only `constant` divides by all rows, because its
divisor must not depend on the data.

A mean depends on its batch. Averaging the token_mean of every micro-batch with equal weights gives the
"local" token mean (TRL's bnpo), in which tokens of micro-batches with few tokens weigh more.
`micro_batch_weights` gives the weights that avoid this.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from testbed.errors import UserError, unknown


def token_sum(loss_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """sum_i sum_t loss."""
    # No product with the mask: NaN or inf at padding times 0 is NaN.
    return torch.where(mask_BT, loss_BT, torch.zeros_like(loss_BT)).sum((-2, -1))


def token_mean(loss_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """sum_i sum_t loss / number of tokens (DAPO, arXiv:2503.14476, Eq. 8)."""
    return token_sum(loss_BT, mask_BT) / mask_BT.sum((-2, -1)).clamp(min=1)


def sequence_sum(loss_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """sum_i (1/T_i) sum_t loss, not divided by B (slime).

    The gradient grows with the batch, so a good learning rate depends on the batch size.
    """
    masked_BT = torch.where(mask_BT, loss_BT, torch.zeros_like(loss_BT))
    return (masked_BT.sum(-1) / mask_BT.sum(-1).clamp(min=1)).sum(-1)


def sequence_mean(loss_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """(1/B) sum_i (1/T_i) sum_t loss (GRPO, arXiv:2402.03300, Eq. 3)."""
    return sequence_sum(loss_BT, mask_BT) / mask_BT.any(-1).sum(-1).clamp(min=1)


def length_weighted(loss_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """sum_i T_i (sum_t loss) / sum_i T_i: the mean of sequence losses, weighted by length.

    For losses that are spread over tokens, such as gspo: it equals a token mean of the unspread loss (AReaL's
    GSPO), and 1/mean length times LUSPO's (1/B) sum_i T_i (sum_t loss) (arXiv:2602.05261).
    """
    masked_BT = torch.where(mask_BT, loss_BT, torch.zeros_like(loss_BT))
    length_B = mask_BT.sum(-1)
    return (length_B * masked_BT.sum(-1)).sum(-1) / length_B.sum(-1).clamp(min=1)


def constant(loss_BT: Tensor, mask_BT: Tensor, length: float = 0.0) -> Tensor:
    """(1/(B L)) sum_i sum_t loss; L defaults to the width T (Dr. GRPO, arXiv:2503.20783).

    L = 1 gives the mean over sequences of token sums, the estimator of the policy gradient.
    """
    width = length if length > 0 else mask_BT.shape[-1]
    return token_sum(loss_BT, mask_BT) / (mask_BT.shape[-2] * width)


def sum_over_length(loss_BT: Tensor, mask_BT: Tensor, length: float = 0.0) -> Tensor:
    """(1/L) sum_i sum_t loss, not divided by B; L defaults to the width T (Trinity-RFT's Dr. GRPO)."""
    return token_sum(loss_BT, mask_BT) / (length if length > 0 else mask_BT.shape[-1])


def spread(loss_B1: Tensor, mask_BT: Tensor) -> Tensor:
    """Split a sequence's loss [..., B, 1] into T equal shares per token [..., B, T]; 0 outside the mask.

    The shares sum to the loss, in value and gradient. An overflowing loss is split after the overflow, so
    padding never gives 0 * inf = NaN in the gradient.
    """
    share_B1 = loss_B1 / mask_BT.sum(-1, keepdim=True)
    return torch.where(mask_BT, share_B1, torch.zeros_like(share_B1))


AGGREGATIONS: dict[str, Callable[..., Tensor]] = {
    "token_mean": token_mean,
    "sequence_mean": sequence_mean,
    "sequence_sum": sequence_sum,
    "length_weighted": length_weighted,
    "token_sum": token_sum,
    "constant": constant,
    "sum_over_length": sum_over_length,
}
WITH_LENGTH = ("constant", "sum_over_length")


def aggregate(loss_BT: Tensor, mask_BT: Tensor, mode: str, length: float = 0.0) -> Tensor:
    """Reduce losses per token to one loss per replica.

    Args:
        loss_BT: per-token losses [..., B, T]; values outside the mask are ignored.
        mask_BT: bool, the same shape.
        mode: a name in AGGREGATIONS.
        length: the constant L of the modes constant and sum_over_length; 0 and less mean the width T.

    Returns:
        The loss [...], one per leading axis.

    Raises UserError for an unknown mode, a shape mismatch, or a length given to a mode without one.
    """
    if loss_BT.shape != mask_BT.shape:
        raise UserError(
            f"loss_BT has shape {tuple(loss_BT.shape)}, but mask_BT has shape {tuple(mask_BT.shape)}; "
            "an objective returns one loss per token."
        )
    return _mode(mode, length)(loss_BT, mask_BT)


def _mode(mode: str, length: float) -> Callable[[Tensor, Tensor], Tensor]:
    if mode not in AGGREGATIONS:
        raise unknown("aggregation", mode, AGGREGATIONS)
    if not math.isfinite(length):
        raise UserError(f"length is {length}, expected a finite number; 0 stands for the width T.")
    if mode in WITH_LENGTH:
        return lambda loss_BT, mask_BT: AGGREGATIONS[mode](loss_BT, mask_BT, length)
    if length:
        raise UserError(f"length={length} was given, but aggregation '{mode}' has no length; use 'constant'.")
    return AGGREGATIONS[mode]


def micro_batch_weights(masks: Sequence[Tensor], mode: str, length: float = 0.0) -> Tensor:
    """Return the factor of every micro-batch's aggregate, so that their sum is the whole batch's aggregate.

    A local mean times its share of the global count is its part of the global mean: the shares are N_m / N
    tokens for token_mean and length_weighted, B_m / B sequences for sequence_mean, 1 for sums. Equal weights
    1/M are right only if all counts are equal.

    Args:
        masks: mask [..., B_m, T_m] of every part; all with the same leading axes.
        mode: a name in AGGREGATIONS.
        length: as given to aggregate; with 0 the width of the batch is that of its widest part.

    Returns weights [M, ...]; all are 0 if no part has a token left.
    """
    _mode(mode, length)
    counts: dict[str, Callable[[Tensor], Tensor]] = {
        "token_mean": lambda mask: mask.sum((-2, -1)).double(),
        "length_weighted": lambda mask: mask.sum((-2, -1)).double(),
        "sequence_mean": lambda mask: mask.any(-1).sum(-1).double(),
        "constant": lambda mask: torch.full(mask.shape[:-2], float(mask.shape[-2])).double(),
    }
    ones = torch.ones(len(masks), *masks[0].shape[:-2], dtype=torch.float64, device=masks[0].device)
    if mode in counts:
        count_M = torch.stack([counts[mode](mask).to(ones.device) for mask in masks])
        ones = count_M / count_M.sum(0).clamp(min=1)
    # A part divides by its own width, the whole batch by that of its widest part.
    if mode in WITH_LENGTH and not length > 0:
        width_M = ones.new_tensor([mask.shape[-1] for mask in masks])
        ones = ones * (width_M / width_M.max()).reshape(-1, *[1] * (ones.ndim - 1))
    return ones
