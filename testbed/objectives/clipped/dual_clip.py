"""PPO's surrogate with a second bound for negative advantages."""

from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.clipping import one_sided_clip
from testbed.losses.ratios import log_token
from testbed.objectives import objective


@objective(
    "dual_clip", source="Ye et al. (2020), arXiv:1912.09729, Eq. 5", reads=("anchor", "adv"),
    max_weight="max(c, 1 + eps_high)",
)  # fmt: skip
def dual_clip(
    logp_BT: Tensor, batch: Batch, *, eps_low: float = 0.2, eps_high: float = 0.2, c: float = 3.0
) -> Tensor:
    """L = -min(u A, clip(u) A), and for A < 0 L = -max(min(u A, clip(u) A), c A), u = pi/anchor.

    The second bound limits the weight of tokens with A < 0 and u >> 1. c = 3 is the paper's.
    """
    log_u_BT = log_token(logp_BT, batch, base="anchor")
    return -one_sided_clip(log_u_BT, batch.adv_BT, 1 - eps_low, 1 + eps_high, c) * batch.adv_BT


@objective.variant(
    "dual_clip@verl", source="verl-project/verl 1dda039b 2026-08-22, verl/trainer/ppo/core_algos.py"
)
def dual_clip_verl(
    logp_BT: Tensor,
    batch: Batch,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    c: float = 3.0,
    log_clamp: float = 20.0,
) -> Tensor:
    """L = dual_clip with log u clamped to +-20 before the exponential, u = pi/anchor.

    A token with A > 0 and u < e^-20 loses its (vanishing) weight u; the rest is as in the paper.
    """
    log_u_BT = log_token(logp_BT, batch, base="anchor").clamp(-log_clamp, log_clamp)
    return -one_sided_clip(log_u_BT, batch.adv_BT, 1 - eps_low, 1 + eps_high, c) * batch.adv_BT


@objective.variant(
    "dual_clip@roll",
    source="alibaba/ROLL 8eb27cc2 2026-08-18, the policy-gradient variant worker",
    max_weight="1 + 2 * eps",
)
def dual_clip_roll(logp_BT: Tensor, batch: Batch, *, eps: float = 0.2) -> Tensor:
    """L = dual_clip with c = 1 + 2 eps, u = pi/anchor.

    The second bound follows the first and is not 3: at eps = 0.2 a token with A < 0 stops at 1.4.
    Off by default there.
    """
    return dual_clip(logp_BT, batch, eps_low=eps, eps_high=eps, c=1 + 2 * eps)
