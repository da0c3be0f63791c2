"""GSPO: clip the length-normalized ratio of the whole sequence."""

import math

from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.clipping import one_sided_clip
from testbed.losses.ratios import Base, log_geometric, log_token, sequence_advantage
from testbed.objectives import objective
from testbed.objectives.clipped.token_gradient import through_own_token


@objective(
    "gspo", source="Zheng et al. (2025), arXiv:2507.18071, Eq. 5-7", ratio="geometric",
    reads=("anchor", "adv"), scope="sequence", on_policy="1/T",
)  # fmt: skip
def gspo(logp_BT: Tensor, batch: Batch, *, eps_low: float = 3e-4, eps_high: float = 4e-4) -> Tensor:
    """L = -(1/T) min(s A, clip(s, 1 - eps_low, 1 + eps_high) A), s = (prod_t pi/anchor)^(1/T).

    The loss is spread evenly over the sequence's T tokens, so they sum to the sequence's loss. The clip is
    four orders of magnitude tighter than PPO's because s is a mean (Section 5.1).
    """
    return shared(logp_BT, batch, base="anchor", eps_low=eps_low, eps_high=eps_high)


def shared(logp_BT: Tensor, batch: Batch, *, base: Base, eps_low: float, eps_high: float) -> Tensor:
    """Return the sequence's loss, spread evenly over its tokens."""
    log_s_BT = log_geometric(logp_BT, batch, base=base)
    length_B1 = batch.mask_BT.sum(-1, keepdim=True)
    return -one_sided_clip(log_s_BT, batch.adv_BT, 1 - eps_low, 1 + eps_high) * batch.adv_BT / length_B1


def repeated(logp_BT: Tensor, batch: Batch, *, base: Base, eps_low: float, eps_high: float) -> Tensor:
    """Return the whole sequence's loss at every one of its tokens."""
    log_s_BT = log_geometric(logp_BT, batch, base=base)
    adv_B1 = sequence_advantage(batch)
    return -one_sided_clip(log_s_BT, adv_B1.expand_as(log_s_BT), 1 - eps_low, 1 + eps_high) * adv_B1


def own_token(
    logp_BT: Tensor, batch: Batch, *, eps_low: float, eps_high: float, log_max: float = math.inf
) -> Tensor:
    """Return the loss of s_t = sg[s] pi/sg[pi], log s_t at most log_max."""
    log_u_BT = log_token(logp_BT, batch, base="anchor")
    log_s_BT = through_own_token(log_geometric(logp_BT, batch, base="anchor"), log_u_BT).clamp(max=log_max)
    length_B1 = batch.mask_BT.sum(-1, keepdim=True)
    return -one_sided_clip(log_s_BT, batch.adv_BT, 1 - eps_low, 1 + eps_high) * batch.adv_BT / length_B1
