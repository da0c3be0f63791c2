"""LUSPO: GSPO's sequence loss times the length of its sequence."""

from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.clipping import one_sided_clip
from testbed.losses.ratios import log_geometric
from testbed.objectives import objective


@objective(
    "luspo",
    source="Liu et al. (2026), arXiv:2602.05261",
    ratio="geometric",
    reads=("anchor", "adv"),
    scope="sequence",
)
def luspo(logp_BT: Tensor, batch: Batch, *, eps_low: float = 2e-3, eps_high: float = 2.5e-3) -> Tensor:
    """L = -min(s A, clip(s, 1 - eps_low, 1 + eps_high) A), s = (prod_t pi/anchor)^(1/T), at every token.

    The tokens of a sequence sum to T times GSPO's loss, so long sequences are not damped by 1/T. Aggregate
    with constant, length 1 (mean over sequences). The paper's equation could not be read; form and bounds are
    those that TRL's documentation gives for its Section 5.1.
    """
    log_s_BT = log_geometric(logp_BT, batch, base="anchor")
    return -one_sided_clip(log_s_BT, batch.adv_BT, 1 - eps_low, 1 + eps_high) * batch.adv_BT
