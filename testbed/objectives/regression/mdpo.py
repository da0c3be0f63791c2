"""MDPO: a KL to the policy at the start of the update instead of a clip."""

from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.ratios import log_token
from testbed.objectives import objective


@objective(
    "mdpo", source="Tomar et al. (2020), arXiv:2005.09814, on-policy form", reads=("anchor", "adv"),
    sign=False, penalty=True,
)  # fmt: skip
def mdpo(logp_BT: Tensor, batch: Batch, *, step_size: float = 1.0) -> Tensor:
    """L = -(u A - (u log u - u + 1) / step_size), u = pi/anchor.

    The bracket estimates KL(pi || anchor) from the anchor's samples; it is never negative, and its weight u
    log u vanishes at u = 1. The authors' code has the whole distribution and sums. Meant for several updates
    on one batch, after which the policy nears anchor exp(step_size A) / Z. The paper anneals step_size and
    gives no values for language models; 1 is ours. The off-policy form needs fresh samples of pi and a critic
    at stored states, so it is not a loss on stored tokens.
    """
    log_u_BT = log_token(logp_BT, batch, base="anchor")
    # One product: with u log u apart from u, an overflowing ratio would give inf - inf.
    return -(log_u_BT.exp() * (batch.adv_BT - (log_u_BT - 1) / step_size) - 1 / step_size)
