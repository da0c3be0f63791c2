"""CISPO: clip the detached importance weight, never the gradient."""

from __future__ import annotations

from torch import Tensor

from testbed.batch import Batch
from testbed.objectives import objective
from testbed.ratios import log_token
from testbed.score import score_loss


@objective(
    "cispo",
    source="MiniMax (2025), arXiv:2506.13585, Eq. 4-5",
    ratio="token",
    reads=("mu", "adv"),
    scope="token",
    detached=True,
    on_policy=1,
    max_weight="1+eps_high",
)
def cispo(logp_BT: Tensor, batch: Batch, *, eps_low: float = 1.0, eps_high: float = 0.28) -> Tensor:
    """L = -sg[clip(rho, 1 - eps_low, 1 + eps_high)] A log pi, rho = pi/mu.

    Every token keeps a gradient of bounded weight. The paper switches the lower bound off
    (eps_low = 1) and tunes eps_high without stating it in what could be read; 0.28 is Trinity-RFT's.
    """
    weight_BT = log_token(logp_BT, batch).exp().clamp(1 - eps_low, 1 + eps_high)
    return score_loss(weight_BT, logp_BT, batch)
