"""The one-sided clip that PPO, GRPO, dual-clip and GSPO share."""

import math

import torch
from torch import Tensor


def one_sided_clip(
    log_u: Tensor,
    adv: Tensor,
    low: float | Tensor,
    high: float | Tensor,
    negative_high: float | Tensor = math.inf,
    log_weight: Tensor | None = None,
) -> Tensor:
    """Return u where the clipped surrogate has a gradient, and the constant bound where it has none.

    min(u A, clip(u, low, high) A) / A: clipped above `high` for A >= 0, below `low` for A <= 0, and with dual
    clip above `negative_high` for A < 0. Clipped entries never pass through exp with a gradient, so a ratio
    that overflows becomes a finite bound, not 0 * inf = NaN. log_weight is the log of a detached weight that
    multiplies the result; it does not change what is clipped. The bounds are three numbers or three tensors
    that broadcast.
    """
    u = log_u.detach().exp()
    above = torch.where(adv >= 0, u > high, u > negative_high)
    below = (adv <= 0) & (u < low)
    bound = torch.where(adv >= 0, u.clamp(low, high), u.clamp(low, negative_high))  # type: ignore[arg-type]
    cut = above | below
    if log_weight is not None:
        # Added before exp: a tiny weight times an overflowing ratio is a number, 0 * inf is not.
        bound, log_u = bound * log_weight.exp(), log_u + log_weight
    return torch.where(cut, bound, torch.where(cut, torch.zeros_like(log_u), log_u).exp())
