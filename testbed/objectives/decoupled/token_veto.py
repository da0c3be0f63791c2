"""Token veto: one token that is almost impossible under the anchor drops its sequence."""

import math
from typing import Any

from torch import Tensor

from testbed.data.batch import Batch
from testbed.objectives import objective
from testbed.objectives.decoupled.correction import between, log_mismatch_at, weighted_clip, whole_sequence


def no_vanished_token(_logp_BT: Tensor, batch: Batch, *, floor: float = 1e-4, **_: Any) -> Tensor:
    """Return the tokens of sequences in which every d = anchor/mu is at least the floor."""
    return whole_sequence(between(log_mismatch_at("token", batch), floor, math.inf), batch)


@objective(
    "token_veto",
    source="Liu et al. (2025), yingru.notion.site, 'When Speed Kills Stability'; "
    "volcengine/verl b178a3cd 2026-01-29",
    reads=("mu", "anchor", "adv"),
    keep=no_vanished_token,
)
def token_veto(
    logp_BT: Tensor, batch: Batch, *, floor: float = 1e-4, eps_low: float = 0.2, eps_high: float = 0.2
) -> Tensor:
    """L = -1[all d_t >= floor in the sequence] min(u A, clip(u, 1 - eps_low, 1 + eps_high) A).

    d = anchor/mu, u = pi/anchor. Rejection only, without a weight. floor = 1e-4 as in older verl, which calls
    such a token catastrophic; the note by Liu et al. could not be read.
    """
    keep_BT = no_vanished_token(logp_BT, batch, floor=floor)
    return weighted_clip(logp_BT, batch, eps_low=eps_low, eps_high=eps_high, keep_BT=keep_BT)
