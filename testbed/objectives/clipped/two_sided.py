"""Two-sided clipping: a cap on the ratio before PPO's minimum."""

from torch import Tensor

from testbed.data.batch import Batch
from testbed.errors import UserError
from testbed.losses.clipping import one_sided_clip
from testbed.losses.ratios import log_token
from testbed.objectives import objective


@objective(
    "two_sided",
    source="Prime Intellect (2025), INTELLECT-2, arXiv:2505.07291; `delta` of TRL's GRPOConfig",
    reads=("anchor", "adv"),
    max_weight="max(delta, 1 + eps_high)",
)
def two_sided(
    logp_BT: Tensor, batch: Batch, *, eps_low: float = 0.2, eps_high: float = 0.2, delta: float = 4.0
) -> Tensor:
    """L = -min(min(u, delta) A, clip(u, 1 - eps_low, 1 + eps_high) A), u = pi/anchor.

    The cap holds for both signs, but only A < 0 feels it while delta > 1 + eps_high: then it is dual_clip
    with c = delta. With a smaller delta only A > 0 feels it, because for A < 0 the minimum takes the clipped
    term. 4 is the delta of the paper, section 4.1, by TRL's index; TRL does not say how the paper aggregates.
    Raises UserError for delta < 1.
    """
    if delta < 1:
        raise UserError(
            f"two_sided has delta={delta}; a cap below 1 would cut on-policy data. Use 1 or more."
        )
    log_u_BT = log_token(logp_BT, batch, base="anchor")
    high = 1 + eps_high
    clipped_BT = one_sided_clip(log_u_BT, batch.adv_BT, 1 - eps_low, min(high, delta), max(high, delta))
    return -clipped_BT * batch.adv_BT
