"""AIPO: token importance weights, truncated only from above."""

from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.ratios import log_token
from testbed.losses.score_loss import score_loss
from testbed.objectives import objective


@objective(
    "aipo", source="LlamaRL (2025), arXiv:2505.24034", reads=("mu", "adv"), detached=True, max_weight="r_max"
)
def aipo(logp_BT: Tensor, batch: Batch, *, r_max: float = 2.0) -> Tensor:
    """L = -sg[min(rho, r_max)] A log pi, rho = pi/mu of the token.

    No lower bound and no clip by sign. The paper gives a range for r_max, 2 to 10; the default is its lower
    end. A = R - group mean. The excerpts that were read do not say how it
    aggregates; a sum over tokens is assumed.
    """
    return score_loss(log_token(logp_BT, batch).exp().clamp(max=r_max), logp_BT, batch)
