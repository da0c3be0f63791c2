"""R2VPO: a multiplier keeps the variance of the ratio within a budget."""

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.errors import unknown
from testbed.losses.dual_update import DualUpdate
from testbed.losses.ratios import log_ratio
from testbed.objectives import objective

LEVELS = ("token", "sequence", "geometric")


def log_ratio_at(level: str, logp_BT: Tensor, batch: Batch) -> Tensor:
    """Return log of pi/mu at a level that R2VPO knows; [..., B, T]."""
    if level not in LEVELS:
        raise unknown("ratio level", level, LEVELS)
    return log_ratio(level, logp_BT, batch)


@torch.no_grad()
def dual_step(
    lam: Tensor, logp_BT: Tensor, batch: Batch, *, rate: float, budget: float, level: str = "token"
) -> Tensor:
    """Return lam after one step: max(0, lam + rate (mean (r - 1)^2 - budget)); [...].

    The mean is over each replica's tokens under the mask (for a sequence level, over its sequences). If it is
    not finite, lam stays: an overflow shows that the constraint is broken, but not by how much.

    Args:
        lam: one multiplier per replica, [...].
        logp_BT: log-probabilities [..., B, T] of the target policy; a recipe passes those of its last
            gradient, which saves a forward pass.
        batch: the data.
        rate: step size.
        budget: the variance allowed.
        level: as given to r2vpo.
    """
    square_BT = torch.expm1(log_ratio_at(level, logp_BT, batch)).square()
    square_BT = torch.where(batch.mask_BT, square_BT, torch.zeros_like(square_BT))
    if level == "token":
        mean = square_BT.sum((-2, -1)) / batch.mask_BT.sum((-2, -1))
    else:
        mean = (square_BT.sum(-1) / batch.mask_BT.sum(-1)).mean(-1)
    moved = (lam + rate * (mean - budget)).clamp(min=0).to(lam.dtype)
    return torch.where(torch.isfinite(mean), moved, lam)


@objective(
    "r2vpo", source="Luo et al. (2026), arXiv:2601.03320 and arXiv:2605.26784", reads=("mu", "adv"),
    sign=False, penalty=True, dual=DualUpdate("lam", dual_step),
)  # fmt: skip
def r2vpo(logp_BT: Tensor, batch: Batch, *, lam: float | Tensor = 0.04, level: str = "token") -> Tensor:
    """L = -r A + lam (r - 1)^2, r = pi/mu.

    The weight r (A - 2 lam (r - 1)) is zero at r = 1 + A / (2 lam), reverses beyond, and pulls r to 1 where A
    = 0. lam may be a number or a tensor [..., 1, 1], one per replica, that `dual_step` moves. With level
    "sequence" or "geometric" a sequence's loss is spread over its tokens.

    Loss from secondary sources; lam = 0.04 is a toy example's. They name no level, budget,
    aggregation, start or step size of lam, and no code is public; the default level and token_mean are ours.
    """
    log_r_BT = log_ratio_at(level, logp_BT, batch)
    lam_BT = torch.as_tensor(lam, dtype=log_r_BT.dtype, device=log_r_BT.device)
    # If both terms, or only the penalty, are missing, an overflow must not meet a 0.
    nothing_BT = (lam_BT == 0) & (batch.adv_BT == 0)
    r_BT = torch.where(nothing_BT, torch.zeros_like(log_r_BT), log_r_BT).exp()
    brake_BT = torch.where(lam_BT == 0, torch.zeros_like(log_r_BT), log_r_BT).exp()
    # -r A + lam (r^2 - 2 r + 1), factored, as opposite infinities would give NaN.
    loss_BT = r_BT * (lam_BT * (brake_BT - 2) - batch.adv_BT) + lam_BT
    return loss_BT if level == "token" else loss_BT / batch.mask_BT.sum(-1, keepdim=True)
