"""GSPO: clip the length-normalized ratio of the whole sequence."""

from __future__ import annotations

from torch import Tensor

from testbed.batch import Batch
from testbed.clipping import one_sided_clip
from testbed.objectives import objective
from testbed.ratios import log_geometric


@objective(
    "gspo",
    source="Zheng et al. (2025), arXiv:2507.18071, Eq. 5-7",
    ratio="geometric",
    reads=("anchor", "adv"),
    scope="sequence",
    on_policy="1/T",
)
def gspo(logp_BT: Tensor, batch: Batch, *, eps_low: float = 3e-4, eps_high: float = 4e-4) -> Tensor:
    """L = -(1/T) min(s A, clip(s, 1 - eps_low, 1 + eps_high) A), s = (prod_t pi/anchor)^(1/T).

    Spread evenly over the T tokens of the sequence, so that their sum is the sequence's loss. The
    clip is four orders of magnitude tighter than PPO's because s is a mean (Section 5.1).
    """
    log_s_BT = log_geometric(logp_BT, batch, base="anchor")
    length_B1 = batch.mask_BT.sum(-1, keepdim=True)
    return -one_sided_clip(log_s_BT, batch.adv_BT, 1 - eps_low, 1 + eps_high) * batch.adv_BT / length_B1
