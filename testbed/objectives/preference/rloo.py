"""RLOO in its asynchronous form: PPO's clip on the whole sequence's ratio."""

from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.aggregate import spread
from testbed.losses.clipping import one_sided_clip
from testbed.losses.ratios import log_token, sequence_advantage
from testbed.objectives import objective


@objective(
    "rloo", source="Ahmadian et al. (2024), arXiv:2402.14740; sequence clip: mnoukhov/async_rlhf 5598529",
    ratio="sequence", reads=("anchor", "adv"), scope="sequence",
)  # fmt: skip
def rloo(logp_BT: Tensor, batch: Batch, *, eps: float = 0.2) -> Tensor:
    """L = -(1/T) min(W A, clip(W, 1 - eps, 1 + eps) A), W = prod_t pi/anchor.

    A is the leave-one-out advantage (of R - kappa sum_t log anchor/ref in the code). On-policy it is the
    paper's REINFORCE. The clip is that of the asynchronous code (arXiv:2410.18252) and of TRL; its anchor is
    the trainer's recomputation when the data arrive, not the sampler. Spread evenly over the T tokens;
    aggregate with constant, length 1.
    """
    log_w_B1 = log_token(logp_BT, batch, base="anchor").sum(-1, keepdim=True)
    adv_B1 = sequence_advantage(batch)
    return spread(-one_sided_clip(log_w_B1, adv_B1, 1 - eps, 1 + eps) * adv_B1, batch.mask_BT)
