"""Per-token losses to one scalar per replica. The only place that divides a loss."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from testbed.errors import UserError, unknown


def token_sum(loss_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """sum_i sum_t loss."""
    return torch.where(mask_BT, loss_BT, torch.zeros_like(loss_BT)).sum((-2, -1))


def token_mean(loss_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """sum_i sum_t loss / number of tokens (DAPO, arXiv:2503.14476, Eq. 8)."""
    return token_sum(loss_BT, mask_BT) / mask_BT.sum((-2, -1))


def sequence_mean(loss_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """(1/B) sum_i (1/T_i) sum_t loss (GRPO, arXiv:2402.03300, Eq. 3)."""
    masked_BT = torch.where(mask_BT, loss_BT, torch.zeros_like(loss_BT))
    return (masked_BT.sum(-1) / mask_BT.sum(-1)).mean(-1)


def constant(loss_BT: Tensor, mask_BT: Tensor, length: float = 0.0) -> Tensor:
    """(1/(B L)) sum_i sum_t loss; L defaults to the width T (Dr. GRPO, arXiv:2503.20783).

    L = 1 gives the mean over sequences of token sums, the estimator of the policy gradient.
    """
    width = length if length > 0 else mask_BT.shape[-1]
    return token_sum(loss_BT, mask_BT) / (mask_BT.shape[-2] * width)


def spread(loss_B1: Tensor, mask_BT: Tensor) -> Tensor:
    """Return a sequence's loss [..., B, 1] as equal shares of its T tokens [..., B, T], 0 outside the mask.

    Their sum is the loss again, value and gradient. A loss that overflows is spread after the overflow,
    so that no 0 * inf at padding turns its gradient into NaN.
    """
    share_B1 = loss_B1 / mask_BT.sum(-1, keepdim=True)
    return torch.where(mask_BT, share_B1, torch.zeros_like(share_B1))


AGGREGATIONS: dict[str, Callable[..., Tensor]] = {
    "token_mean": token_mean,
    "sequence_mean": sequence_mean,
    "token_sum": token_sum,
    "constant": constant,
}


def aggregate(loss_BT: Tensor, mask_BT: Tensor, mode: str, length: float = 0.0) -> Tensor:
    """Return one scalar per leading axis.

    Args:
        loss_BT: per-token losses [..., B, T]; values outside the mask are ignored.
        mask_BT: bool, the same shape.
        mode: token_mean, sequence_mean, token_sum or constant.
        length: the constant L of mode "constant"; 0 means the width T.

    Raises UserError for an unknown mode, a shape mismatch, or a length given to a mode without one.
    """
    if mode not in AGGREGATIONS:
        raise unknown("aggregation", mode, AGGREGATIONS)
    if loss_BT.shape != mask_BT.shape:
        raise UserError(
            f"loss_BT has shape {tuple(loss_BT.shape)}, but mask_BT has shape {tuple(mask_BT.shape)}; "
            "an objective returns one loss per token."
        )
    if mode == "constant":
        return constant(loss_BT, mask_BT, length)
    if length:
        raise UserError(f"length={length} was given, but aggregation '{mode}' has no length; use 'constant'.")
    return AGGREGATIONS[mode](loss_BT, mask_BT)
