"""PPO's surrogate with a second bound for negative advantages."""

from __future__ import annotations

from torch import Tensor

from testbed.batch import Batch
from testbed.clipping import one_sided_clip
from testbed.objectives import objective
from testbed.ratios import log_token


@objective(
    "dual_clip",
    source="Ye et al. (2020), arXiv:1912.09729, Eq. 5",
    ratio="token",
    reads=("anchor", "adv"),
    scope="token",
    on_policy=1,
    max_weight="max(c, 1 + eps_high)",
)
def dual_clip(
    logp_BT: Tensor, batch: Batch, *, eps_low: float = 0.2, eps_high: float = 0.2, c: float = 3.0
) -> Tensor:
    """L = -min(u A, clip(u) A), and for A < 0 L = -max(min(u A, clip(u) A), c A), u = pi/anchor.

    Without it a token with A < 0 and u >> 1 has an unbounded weight. c = 3 is the paper's.
    """
    log_u_BT = log_token(logp_BT, batch, base="anchor")
    return -one_sided_clip(log_u_BT, batch.adv_BT, 1 - eps_low, 1 + eps_high, c) * batch.adv_BT
