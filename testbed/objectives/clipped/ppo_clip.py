"""PPO's clipped surrogate, which is also GRPO's."""

from __future__ import annotations

from torch import Tensor

from testbed.batch import Batch
from testbed.clipping import one_sided_clip
from testbed.objectives import objective
from testbed.ratios import log_token


@objective(
    "ppo_clip",
    source="Schulman et al. (2017), arXiv:1707.06347, Eq. 7; Shao et al. (2024), arXiv:2402.03300, Eq. 3",
    ratio="token",
    reads=("anchor", "adv"),
    scope="token",
    on_policy=1,
)
def ppo_clip(logp_BT: Tensor, batch: Batch, *, eps_low: float = 0.2, eps_high: float = 0.2) -> Tensor:
    """L = -min(u A, clip(u, 1 - eps_low, 1 + eps_high) A), u = pi/anchor.

    A positive advantage is cut only above, a negative one only below; beyond the cut the gradient is 0.
    """
    log_u_BT = log_token(logp_BT, batch, base="anchor")
    return -one_sided_clip(log_u_BT, batch.adv_BT, 1 - eps_low, 1 + eps_high) * batch.adv_BT
