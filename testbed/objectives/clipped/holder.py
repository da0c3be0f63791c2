"""HölderPO: the power mean of the token ratios, with an exponent that a schedule may change."""

import math

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.errors import unknown
from testbed.losses.aggregate import spread
from testbed.losses.clipping import one_sided_clip
from testbed.losses.ratios import log_token, sequence_advantage
from testbed.objectives import objective
from testbed.objectives.clipped.gmpo import clip_against_sign

_GEOMETRIC = 1e-6
"""Below this |p| the geometric mean is used; it differs from the power mean by p/2 var(log u)."""


@objective(
    "holder", source="HölderPO (2026), arXiv:2605.12058; YihangChen9/HolderPO, train_zero_math_holder.py",
    ratio="power_mean", reads=("anchor", "adv"), scope="sequence", on_policy="1/T",
)  # fmt: skip
def holder(
    logp_BT: Tensor,
    batch: Batch,
    *,
    p: float = 1.0,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    clip: str = "sequence",
) -> Tensor:
    """L = -(1/T) min(m A, clip(m, 1 - eps_low, 1 + eps_high) A), m = (mean of u^p)^(1/p), u = pi/anchor.

    Token t weighs m u_t^p / sum u^p: p > 1 follows the largest ratios, p < 0 the smallest; p = 0 is the
    geometric mean. The paper clips the sequence; clip="token" clips every u_t by the sign of A before the
    mean, an option of the authors' code. A is the sequence's mean advantage, spread over its tokens. p = 1 is
    the code's default; the paper moves it from 2 to -2 (`holder_exponent`). The paper's eps could not be
    verified; 0.2 is that of the authors' script.
    """
    if clip not in ("sequence", "token"):
        raise unknown("clip of holder", clip, ("sequence", "token"))
    log_u_BT = log_token(logp_BT, batch, base="anchor")
    adv_B1 = sequence_advantage(batch)
    if clip == "sequence":
        log_m_B1 = log_power_mean(log_u_BT, batch.mask_BT, p)
        mean_B1 = one_sided_clip(log_m_B1, adv_B1, 1 - eps_low, 1 + eps_high)
    else:
        low = math.log(1 - eps_low) if eps_low < 1 else -math.inf
        clipped_BT = clip_against_sign(log_u_BT, adv_B1 >= 0, adv_B1 < 0, low, math.log(1 + eps_high))
        mean_B1 = log_power_mean(clipped_BT, batch.mask_BT, p).exp()
    return spread(-mean_B1 * adv_B1, batch.mask_BT)


def log_power_mean(log_u_BT: Tensor, mask_BT: Tensor, p: float) -> Tensor:
    """log ((1/T) sum_t u_t^p)^(1/p) over the tokens under the mask; log_u_BT is 0 outside it; [..., B, 1].

    In float64, because for small p the log of a sum near T is divided by p.
    """
    length_B1 = mask_BT.sum(-1, keepdim=True)
    if abs(p) < _GEOMETRIC:
        return log_u_BT.sum(-1, keepdim=True) / length_B1
    power_BT = (p * log_u_BT.detach().double()).masked_fill(~mask_BT, -math.inf)
    value_B1 = (power_BT.logsumexp(-1, keepdim=True) - length_B1.double().log()) / p
    share_BT = power_BT.softmax(-1).to(log_u_BT.dtype)
    # The gradient consists of the shares. Tokens with an underflowing share are skipped, so an overflowing
    # mean sends them no inf * 0 = NaN.
    move_BT = torch.where(share_BT > 0, log_u_BT - log_u_BT.detach(), torch.zeros_like(log_u_BT))
    return value_B1.to(log_u_BT.dtype) + (share_BT * move_BT).sum(-1, keepdim=True)


def holder_exponent(
    progress: float, *, schedule: str = "linear", start: float = 2.0, end: float = -2.0
) -> float:
    """Return the exponent p after a share of training, by one of the authors' schedules.

    Args:
        progress: steps done over steps of the schedule; clamped to [0, 1].
        schedule: constant (start), linear, cosine, quadratic (slow, then fast), cubic (fast, slow in
            the middle, fast).
        start: p at 0.
        end: p at 1. The paper goes from 2 to -2 for mathematics, from 1 to -1 for ALFWorld.

    Raises UserError for an unknown schedule.

    >>> [holder_exponent(x) for x in (0.0, 0.25, 1.0)]
    [2.0, 1.0, -2.0]
    """
    x = min(max(progress, 0.0), 1.0)
    done = {
        "constant": 0.0,
        "linear": x,
        "cosine": (1 - math.cos(math.pi * x)) / 2,
        "quadratic": x**2,
        "cubic": (1 + (2 * x - 1) ** 3) / 2,
    }
    if schedule not in done:
        raise unknown("Hölder schedule", schedule, done)
    return start + (end - start) * done[schedule]
