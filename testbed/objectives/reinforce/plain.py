"""REINFORCE without any correction for stale data."""

from torch import Tensor

from testbed.data.batch import Batch
from testbed.objectives import objective


@objective(
    "reinforce", source="Williams (1992), Machine Learning 8, 229-256", ratio="none", reads=("adv",),
    max_weight=1,
)  # fmt: skip
def reinforce(logp_BT: Tensor, batch: Batch) -> Tensor:
    """L = -A log pi.

    Unbiased for the policy gradient only on on-policy data.
    """
    return -batch.adv_BT * logp_BT
