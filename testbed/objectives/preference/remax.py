"""ReMax: REINFORCE against the greedy response, with a KL reward at the token that earned it."""

from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.ratios import log_token
from testbed.objectives import objective


@objective(
    "remax", source="Li et al. (2023), arXiv:2310.10505; liziniu/ReMax, remax_trainer.py", ratio="none",
    reads=("ref", "adv"), detached=True, sign=False, penalty=True,
)  # fmt: skip
def remax(logp_BT: Tensor, batch: Batch, *, kappa: float = 0.1) -> Tensor:
    """L = -(A - kappa sg[log pi/ref]) log pi, A = R - R(greedy response).

    The penalty covers the immediate token only: no token pays for later ones, as with a return. The advantage
    provides the greedy baseline, which must come from the version that sampled. No ratio: on-policy.
    Aggregate with token_mean. kappa = 0.1 is the code's.
    """
    return -(batch.adv_BT - kappa * log_token(logp_BT.detach(), batch, base="ref")) * logp_BT
