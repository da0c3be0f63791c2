"""Turn-PPO, S-PPO and ST-PPO: ratios of whole turns, and a correction for clipped gradients."""

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.errors import unknown
from testbed.losses.clipping import one_sided_clip
from testbed.losses.ratios import log_ratio
from testbed.objectives import objective

CORRECTIONS = ("norm", "subtract")
_SOURCE = "Li et al. (2025), ST-PPO, arXiv:2511.20718"


@objective(
    "st_ppo", source=f"{_SOURCE} (ST-PPO)", ratio="turn", reads=("anchor", "adv", "turn"), scope="sequence",
    detached=True,
)  # fmt: skip
def st_ppo(
    logp_BT: Tensor,
    batch: Batch,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    correction: str = "norm",
    alpha: float = 1.0,
) -> Tensor:
    """L = -min(w A, clip(w) A) / max(1, |C|), or undivided plus alpha w A at cut tokens; w of a turn.

    w = (prod over the turn of pi/anchor)^(1/n), as in turn_ppo. C is the clipping bias, the gradient
    sum of w A grad log pi over the cut tokens. The abstracts of both versions say that it
    normalizes gradients; a secondary note subtracts it. Eq. 7-8 were not read, so both readings are here:

    correction="norm": the gradient is divided by |C|; the paper's second version calls it clipping-triggered
    normalization. As a loss this is done per sequence, detached, with |C| = sqrt(sum of (w A)^2 over its
    clipped tokens): the norm of C if the scores of different tokens are orthonormal, the best that per-token
    weights can do. The divisor is at least 1. This floor is ours: it avoids 0/0, and huge steps when little
    is clipped.
    correction="subtract": the gradient minus alpha C: a clipped token has weight -alpha w A and is pushed
    back. alpha = 0 is turn_ppo, alpha = -1 removes the clip. alpha = 1 is that note's.
    """
    return corrected_clip(
        logp_BT, batch, level="turn", eps_low=eps_low, eps_high=eps_high, correction=correction, alpha=alpha
    )


def corrected_clip(
    logp_BT: Tensor,
    batch: Batch,
    *,
    level: str,
    eps_low: float,
    eps_high: float,
    correction: str,
    alpha: float,
) -> Tensor:
    """Return PPO's clipped loss with ST-PPO's correction; raise UserError for an unknown one."""
    log_w_BT, low, high = log_ratio(level, logp_BT, batch, "anchor"), 1 - eps_low, 1 + eps_high
    if correction not in CORRECTIONS:
        raise unknown("correction", correction, CORRECTIONS)
    adv_BT = batch.adv_BT
    w_BT = log_w_BT.detach().exp()
    cut_BT = torch.where(adv_BT > 0, w_BT > high, (adv_BT < 0) & (w_BT < low)) & batch.mask_BT
    loss_BT = -one_sided_clip(log_w_BT, adv_BT, low, high) * adv_BT
    none_BT = torch.zeros_like(log_w_BT)
    if correction == "subtract":
        # Clipped tokens pass through exp with a gradient on purpose: their weight is subtracted.
        cut_w_BT = torch.where(cut_BT, log_w_BT, none_BT).exp()
        return loss_BT + alpha * torch.where(cut_BT, cut_w_BT * adv_BT, none_BT)
    norm_B1 = torch.where(cut_BT, w_BT * adv_BT, none_BT).square().sum(-1, keepdim=True).sqrt()
    # Keep an overflowing norm finite, so that no inf / inf turns the rest of the sequence into NaN.
    return loss_BT / norm_B1.clamp(1, torch.finfo(norm_B1.dtype).max)
