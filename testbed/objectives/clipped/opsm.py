"""OPSM: drop whole negative sequences that the policy has already left."""

import math

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.clipping import one_sided_clip
from testbed.losses.ratios import log_geometric, log_token
from testbed.objectives import objective


def not_left_behind(logp_BT: Tensor, batch: Batch, *, delta: float = 0.1) -> Tensor:
    """Return the tokens to keep: not those with A < 0 in a sequence with mean log(mu/pi) > delta."""
    drift_BT = -log_geometric(logp_BT.detach(), batch)
    return ~((batch.adv_BT < 0) & (drift_BT > delta))


@objective(
    "opsm", source="DeepSeek-AI (2025), DeepSeek-V3.2, arXiv:2512.02556 (off-policy sequence masking)",
    reads=("mu", "anchor", "adv"), scope="sequence", keep=not_left_behind,
)  # fmt: skip
def opsm(
    logp_BT: Tensor,
    batch: Batch,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    delta: float = 0.1,
    c: float = math.inf,
) -> Tensor:
    """L = -M min(u A, clip(u, 1 - eps_low, 1 + eps_high) A), M = 0 where A < 0 and mean log(mu/pi) > delta.

    u = pi/anchor. The mean over the sequence's tokens is against mu, so staleness and engine mismatch both
    count. Positive sequences are never dropped. The denominator keeps the dropped tokens. The paper gives no
    delta: 0.1 is Trinity-RFT's, TRL's example has 0.5. c: dual clip, u <= c for A < 0; off by default, 3 in
    Trinity-RFT.
    """
    keep_BT = not_left_behind(logp_BT, batch, delta=delta)
    log_u_BT = log_token(logp_BT, batch, base="anchor")
    kept_BT = torch.where(keep_BT, log_u_BT, torch.zeros_like(log_u_BT))
    return -one_sided_clip(kept_BT, batch.adv_BT, 1 - eps_low, 1 + eps_high, c) * batch.adv_BT * keep_BT
