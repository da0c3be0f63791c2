"""PPO's clipped surrogate, which is also GRPO's."""

from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.clipping import one_sided_clip
from testbed.losses.ratios import Base, log_ratio
from testbed.objectives import objective


@objective(
    "ppo_clip",
    source="Schulman et al. (2017), arXiv:1707.06347, Eq. 7; Shao et al. (2024), arXiv:2402.03300, Eq. 3",
    reads=("anchor", "adv"),
)
def ppo_clip(logp_BT: Tensor, batch: Batch, *, eps_low: float = 0.2, eps_high: float = 0.2) -> Tensor:
    """L = -min(u A, clip(u, 1 - eps_low, 1 + eps_high) A), u = pi/anchor.

    Positive advantages are clipped only above, negative ones only below; clipped tokens have gradient 0.
    """
    return surrogate(logp_BT, batch, level="token", base="anchor", eps_low=eps_low, eps_high=eps_high)


def surrogate(
    logp_BT: Tensor, batch: Batch, *, level: str, base: Base, eps_low: float, eps_high: float
) -> Tensor:
    """Return -min(r A, clip(r, 1 - eps_low, 1 + eps_high) A), r the ratio to a base at a level."""
    log_r_BT = log_ratio(level, logp_BT, batch, base)
    return -one_sided_clip(log_r_BT, batch.adv_BT, 1 - eps_low, 1 + eps_high) * batch.adv_BT
