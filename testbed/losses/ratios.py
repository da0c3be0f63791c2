"""Importance ratios in log space: token, prefix, min-prefix, sequence, geometric, turn.

Every function takes logp_BT and a Batch, ignores tokens outside the mask (their log-ratio is 0) and
computes in float32 at least. `base` names the policy in the denominator: "mu" (behavior), "anchor" or "ref".
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.errors import unknown

Base = Literal["mu", "anchor", "ref"]


def log_token(logp_BT: Tensor, batch: Batch, base: Base = "mu") -> Tensor:
    """log rho_t = log pi(y_t) - log mu(y_t); [..., B, T], 0 outside the mask."""
    other_BT = batch.require(f"logp_{base}_BT", f"a ratio to '{base}'")
    return _difference(logp_BT, other_BT, batch.mask_BT)


def log_mismatch(batch: Batch) -> Tensor:
    """log d_t = log anchor(y_t) - log mu(y_t), the engine mismatch part of pi/mu; [..., B, T]."""
    return _difference(batch.logp_anchor_BT, batch.logp_mu_BT, batch.mask_BT)


def _difference(logp_BT: Tensor, other_BT: Tensor, mask_BT: Tensor) -> Tensor:
    dtype = torch.promote_types(logp_BT.dtype, torch.float32)
    # The mask comes first: log-probabilities at padding may be anything, and inf - inf is NaN.
    difference = logp_BT.to(dtype) - other_BT.to(dtype)
    return torch.where(mask_BT, difference, torch.zeros((), dtype=dtype, device=difference.device))


def log_prefix(logp_BT: Tensor, batch: Batch, base: Base = "mu") -> Tensor:
    """log rho_{1:t} = sum over s <= t of log rho_s; [..., B, T]."""
    return log_token(logp_BT, batch, base).cumsum(-1)


def log_sequence(logp_BT: Tensor, batch: Batch, base: Base = "mu") -> Tensor:
    """log W = sum over t of log rho_t, the same at every token; [..., B, T]."""
    return _at_tokens(log_token(logp_BT, batch, base).sum(-1, keepdim=True), batch.mask_BT)


def log_geometric(logp_BT: Tensor, batch: Batch, base: Base = "mu") -> Tensor:
    """log s = (1/T) log W with T the tokens under the mask, the same at every token; [..., B, T]."""
    length_B1 = batch.mask_BT.sum(-1, keepdim=True)
    log_w_B1 = log_token(logp_BT, batch, base).sum(-1, keepdim=True)
    return _at_tokens(log_w_B1 / length_B1, batch.mask_BT)


def _at_tokens(value_B1: Tensor, mask_BT: Tensor) -> Tensor:
    # 0 at padding: a ratio that overflows there would send 0 * inf = NaN back into the whole sequence.
    return torch.where(mask_BT, value_B1, torch.zeros_like(value_B1))


def log_min_prefix(logp_BT: Tensor, batch: Batch, base: Base = "mu") -> Tensor:
    """log of min over s < t of rho_s, times rho_t; the first token's minimum is 1; [..., B, T].

    The source (MinPRO, arXiv:2601.22718) does not settle the first token's minimum; 1 is our choice.
    """
    log_rho_BT = log_token(logp_BT, batch, base)
    padded_BT = log_rho_BT.masked_fill(~batch.mask_BT, torch.inf)
    before_BT = padded_BT.cummin(-1).values[..., :-1]
    first_B1 = torch.full_like(padded_BT[..., :1], torch.inf)
    lowest_BT = torch.cat([first_B1, before_BT], dim=-1)
    return torch.where(torch.isinf(lowest_BT), torch.zeros_like(lowest_BT), lowest_BT) + log_rho_BT


def log_turn(logp_BT: Tensor, batch: Batch, base: Base = "mu") -> Tensor:
    """Mean of log rho over the tokens of the same turn, the same at every one of them; [..., B, T].

    Turn-PPO (arXiv:2511.20718). Needs turn_BT.
    """
    turn_BT = batch.require("turn_BT", "a turn ratio").masked_fill(~batch.mask_BT, 0)
    log_rho_BT = log_token(logp_BT, batch, base)
    total = torch.zeros_like(log_rho_BT).scatter_add(-1, turn_BT, log_rho_BT)
    count = torch.zeros_like(log_rho_BT).scatter_add(-1, turn_BT, batch.mask_BT.to(log_rho_BT.dtype))
    mean = total / count.clamp(min=1)
    return torch.where(batch.mask_BT, mean.gather(-1, turn_BT), torch.zeros_like(log_rho_BT))


def sequence_advantage(batch: Batch) -> Tensor:
    """Return each sequence's mean advantage over its tokens; [..., B, 1].

    Losses with one ratio per sequence multiply the ratio by it.
    """
    adv_BT = torch.where(batch.mask_BT, batch.adv_BT, torch.zeros_like(batch.adv_BT))
    return adv_BT.sum(-1, keepdim=True) / batch.mask_BT.sum(-1, keepdim=True)


LEVELS: dict[str, Callable[..., Tensor]] = {
    "token": log_token, "prefix": log_prefix, "sequence": log_sequence, "geometric": log_geometric,
    "min_prefix": log_min_prefix, "turn": log_turn,
}  # fmt: skip


def log_ratio(level: str, logp_BT: Tensor, batch: Batch, base: Base = "mu") -> Tensor:
    """Return the log-ratio of pi to another policy at a named level.

    Args:
        level: token, prefix, min_prefix, sequence, geometric or turn.
        logp_BT: log-probabilities [..., B, T] of the target policy, nats.
        batch: the data.
        base: the policy in the denominator: "mu", "anchor" or "ref".

    Returns:
        Log-ratios that broadcast to [..., B, T].

    Raises UserError for an unknown level.
    """
    if level not in LEVELS:
        raise unknown("ratio level", level, LEVELS)
    return LEVELS[level](logp_BT, batch, base)
