"""BAPO: absolute clip bounds, widened per batch until positive tokens reach their share of the loss."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.errors import unknown
from testbed.losses.batch_statistic import BatchStatistic
from testbed.losses.clipping import one_sided_clip
from testbed.losses.ratios import log_token
from testbed.objectives import objective


def weighted_tokens(logp_BT: Tensor, batch: Batch, *, mu_weights: bool = True, **_: Any) -> Tensor:
    """Return the weighted advantage, 0 outside the mask, and u = pi/anchor of every token; [..., 2, B T]."""
    u_BT = log_token(logp_BT, batch, base="anchor").exp()
    adv_BT = torch.where(batch.mask_BT, batch.adv_BT.to(u_BT.dtype), torch.zeros_like(u_BT))
    if mu_weights:
        logp_mu_BT = torch.where(batch.mask_BT, batch.logp_mu_BT.to(u_BT.dtype), torch.zeros_like(u_BT))
        adv_BT = adv_BT * logp_mu_BT.exp()
    return torch.stack([adv_BT.flatten(-2), u_BT.flatten(-2)], dim=-2)


def _steps(start: float, end: float, step: float, beyond: bool = False) -> list[float]:
    """Return start, start + step, ... up to end; `beyond` adds end itself if the steps miss it."""
    steps = (end - start) / step if step > 0 else 0.0
    # In floats (0.95 - 0.8) / 0.05 is 2.9999999999999982, and the end would not be reached.
    whole = max(math.floor(steps + 1e-9), 0)
    last = [end] if beyond and steps > whole + 1e-9 else []
    return [start + k * step for k in range(whole + 1)] + last


def _contributions(u_K: Tensor, size_K: Tensor, bounds: Sequence[float], above: bool, value: bool) -> Tensor:
    """Return sum of size * u over the tokens inside each bound, for values plus size * bound outside it.

    Inside is u <= bound with `above`, else u >= bound. One pass over the tokens for any number of bounds:
    each token falls between two bounds, and running sums over the gaps give the totals.
    """
    grid = torch.tensor(bounds, dtype=u_K.dtype, device=u_K.device)
    gap_K = torch.bucketize(u_K.contiguous(), grid, right=not above)
    # A token without size contributes nothing, even where u overflows.
    inner_K = torch.where(size_K > 0, size_K * u_K, torch.zeros_like(u_K))
    shape = (*u_K.shape[:-1], len(bounds) + 1)
    inner_N, outer_N = (u_K.new_zeros(shape).scatter_add(-1, gap_K, x_K) for x_K in (inner_K, size_K))
    if above:
        inside, outside = inner_N.cumsum(-1)[..., :-1], outer_N.flip(-1).cumsum(-1).flip(-1)[..., 1:]
    else:
        inside, outside = inner_N.flip(-1).cumsum(-1).flip(-1)[..., 1:], outer_N.cumsum(-1)[..., :-1]
    return inside + grid * outside if value else inside


def _share(positive: Tensor, negative: Tensor, share: str) -> Tensor:
    if share == "literal":
        return positive / (positive - negative).abs()
    if share == "odds":
        return torch.where(negative > 0, positive / negative, torch.full_like(positive, math.inf))
    return positive / (positive + negative)


SHARES = ("value", "literal", "gradient", "odds")


def _search(
    pool_2K: Tensor, lows: list[float], highs: list[float], high_first: bool, target: float, share: str
) -> Tensor:
    """Return the first (low, high) along the path of bounds with share >= target, or the last; [..., 2]."""
    if share not in SHARES:
        raise unknown("share of positive tokens", share, SHARES)
    size_K, u_K = pool_2K.unbind(-2)
    value = share != "gradient"
    positive = _contributions(u_K, size_K.clamp(min=0), highs, above=True, value=value)
    negative = _contributions(u_K, (-size_K).clamp(min=0), lows, above=False, value=value)
    last_low, last_high = len(lows) - 1, len(highs) - 1
    if high_first:
        path = [(0, k) for k in range(last_high + 1)] + [(k, last_high) for k in range(1, last_low + 1)]
    else:
        path = [(k, 0) for k in range(last_low + 1)] + [(last_low, k) for k in range(1, last_high + 1)]
    low_N, high_N = (torch.tensor(column, device=u_K.device) for column in zip(*path, strict=True))
    short_N = _share(positive[..., high_N], negative[..., low_N], share) < target
    # Take every step while all earlier ones fall short; the last bound has no next one.
    taken = short_N[..., :-1].int().cumprod(-1).sum(-1)
    bounds_N2 = torch.tensor([[lows[i], highs[j]] for i, j in path], dtype=u_K.dtype, device=u_K.device)
    return bounds_N2[taken]


def algorithm_1(
    pool_2K: Tensor,
    *,
    target: float = 0.4,
    low_start: float = 0.6,
    low_end: float = 0.9,
    low_step: float = 0.02,
    high_start: float = 1.2,
    high_end: float = 3.0,
    high_step: float = 0.05,
    share: str = "value",
    **_: Any,
) -> Tensor:
    """Return (c_low, c_high): c_high raised to its end, then c_low, until the share is reached; [..., 2]."""
    lows = _steps(low_start, low_end, low_step)
    # The loop checks for room below before it moves either bound.
    highs = _steps(high_start, high_end, high_step) if len(lows) > 1 else [high_start]
    return _search(pool_2K, lows, highs, True, target, share)


def released_search(
    pool_2K: Tensor,
    *,
    target: float = 1.0,
    low_start: float = 0.6,
    low_end: float = 0.8,
    low_step: float = 0.05,
    high_start: float = 1.2,
    high_end: float = 2.0,
    high_step: float = 0.05,
    **_: Any,
) -> Tensor:
    """Return (c_low, c_high): c_low raised to its end, then c_high, until the odds are reached; [..., 2]."""
    lows = _steps(low_start, low_end, low_step, beyond=True)
    highs = _steps(high_start, high_end, high_step, beyond=True)
    return _search(pool_2K, lows, highs, False, target, "odds")


def _unweighted(logp_BT: Tensor, batch: Batch, **_: Any) -> Tensor:
    return weighted_tokens(logp_BT, batch, mu_weights=False)


BOUNDS = BatchStatistic(weighted_tokens, algorithm_1)
RELEASED_BOUNDS = BatchStatistic(_unweighted, released_search)


def _within(logp_BT: Tensor, batch: Batch, bounds: Tensor, c: float) -> Tensor:
    low, high = (bounds[..., i, None, None] for i in (0, 1))
    log_u_BT = log_token(logp_BT, batch, base="anchor")
    return -one_sided_clip(log_u_BT, batch.adv_BT, low, high, torch.full_like(low, c)) * batch.adv_BT


@objective(
    "bapo", source="Xi et al. (2025), arXiv:2510.18927, Eq. 8 and Algorithm 1",
    reads=("mu", "anchor", "adv"), scope="batch", statistic=BOUNDS,
)  # fmt: skip
def bapo(
    logp_BT: Tensor,
    batch: Batch,
    *,
    target: float = 0.4,
    low_start: float = 0.6,
    low_end: float = 0.9,
    low_step: float = 0.02,
    high_start: float = 1.2,
    high_end: float = 3.0,
    high_step: float = 0.05,
    share: str = "value",
    mu_weights: bool = True,
) -> Tensor:
    """L = -min(u A, clip(u, c_low, c_high) A), u = pi/anchor; bounds solved for a target share of A > 0.

    The bounds are absolute. Algorithm 1 raises c_high by its step to its end, then c_low, and stops at
    the target or when c_low has no room. Eq. 8's sums weigh tokens by mu(y) (`mu_weights`); its bars
    allow three readings of the positive share:

    share="value": sum of positive values / sum of all absolute ones. A clipped negative counts as
    c_low |A|, so raising c_low lowers the share and only c_high can help.
    share="literal": |positive| / |positive - negative|, not confined to [0, 1].
    share="gradient": over the tokens that keep a gradient; here both moves raise the share, as the paper's
    prose says. Nothing public settles it: the text was read as extracted, without its bars, and
    the authors' code has a fourth reading, positive / negative (`bapo@author`).
    """
    hyper = {
        "target": target, "low_start": low_start, "low_end": low_end, "low_step": low_step,
        "high_start": high_start, "high_end": high_end, "high_step": high_step,
        "share": share, "mu_weights": mu_weights,
    }  # fmt: skip
    return _within(logp_BT, batch, BOUNDS(logp_BT, batch, **hyper), math.inf)


@objective.variant(
    "bapo@author",
    source="WooooDyy/BAPO 72870444 2026-01-29, recipe/bapo/policy_loss.py and config/bapo_trainer.yaml",
    reads=("anchor", "adv"), max_weight="max(c, high_end)", statistic=RELEASED_BOUNDS,
)  # fmt: skip
def bapo_author(
    logp_BT: Tensor,
    batch: Batch,
    *,
    target: float = 1.0,
    low_start: float = 0.6,
    low_end: float = 0.8,
    low_step: float = 0.05,
    high_start: float = 1.2,
    high_end: float = 2.0,
    high_step: float = 0.05,
    c: float = 3.0,
) -> Tensor:
    """L = dual_clip with absolute bounds: c_low, then c_high raised until positive / negative >= target.

    A ratio, not a share, without mu's weights. c_low moves first: if the target is unmet at the start, c_low
    runs to its end and worsens the ratio before c_high is tried. Defaults are the yaml's; the example script
    has 0.8 to 0.95, 1.2 to 2.0 in steps of 0.1 and target 0.5. Its log-ratio clamp of +-20 acts only outside
    the bounds, on tokens with a weight below e^-20.
    """
    hyper = {
        "target": target, "low_start": low_start, "low_end": low_end, "low_step": low_step,
        "high_start": high_start, "high_end": high_end, "high_step": high_step,
    }  # fmt: skip
    return _within(logp_BT, batch, RELEASED_BOUNDS(logp_BT, batch, **hyper), c)
