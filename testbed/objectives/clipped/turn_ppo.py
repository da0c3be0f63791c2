"""Turn-PPO, S-PPO and ST-PPO: ratios of whole turns, and a correction for clipped gradients."""

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.errors import unknown
from testbed.losses.clipping import one_sided_clip
from testbed.losses.ratios import log_token, log_turn
from testbed.objectives import objective

CORRECTIONS = ("norm", "subtract")
_SOURCE = "Li et al. (2025), ST-PPO, arXiv:2511.20718"


@objective(
    "turn_ppo",
    source=f"{_SOURCE} (Turn-PPO)",
    ratio="turn",
    reads=("anchor", "adv", "turn"),
    scope="sequence",
)
def turn_ppo(logp_BT: Tensor, batch: Batch, *, eps_low: float = 0.2, eps_high: float = 0.2) -> Tensor:
    """L = -min(w A, clip(w, 1 - eps_low, 1 + eps_high) A), w = (prod over the turn of pi/anchor)^(1/n).

    n is the number of tokens of the turn. All tokens of a turn share its ratio and weigh w times the mean
    advantage of the turn's unclipped tokens. Aggregates with sequence_mean. Abstract and
    reviews, no code being public, do not say how A adds up over a turn: here it is the sum of A over the
    turn's tokens times w/n.
    """
    log_w_BT = log_turn(logp_BT, batch, base="anchor")
    return -one_sided_clip(log_w_BT, batch.adv_BT, 1 - eps_low, 1 + eps_high) * batch.adv_BT


@objective("s_ppo", source=f"{_SOURCE} (S-PPO)", reads=("anchor", "adv"), scope="sequence", detached=True)
def s_ppo(
    logp_BT: Tensor,
    batch: Batch,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    correction: str = "norm",
    alpha: float = 1.0,
) -> Tensor:
    """L = -min(u A, clip(u) A) / max(1, |C|), or undivided plus alpha u A at cut tokens; u = pi/anchor.

    st_ppo's correction on token ratios; st_ppo explains the two readings.
    """
    log_u_BT = log_token(logp_BT, batch, base="anchor")
    return corrected_clip(log_u_BT, batch, 1 - eps_low, 1 + eps_high, correction, alpha)


@objective(
    "st_ppo",
    source=f"{_SOURCE} (ST-PPO)",
    ratio="turn",
    reads=("anchor", "adv", "turn"),
    scope="sequence",
    detached=True,
)
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
    log_w_BT = log_turn(logp_BT, batch, base="anchor")
    return corrected_clip(log_w_BT, batch, 1 - eps_low, 1 + eps_high, correction, alpha)


def corrected_clip(
    log_w_BT: Tensor, batch: Batch, low: float, high: float, correction: str, alpha: float
) -> Tensor:
    """Return PPO's clipped loss with ST-PPO's correction; raise UserError for an unknown one."""
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
