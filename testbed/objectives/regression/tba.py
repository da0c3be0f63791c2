"""TBA: trajectory balance with the partition function estimated from the group (VarGrad)."""

from torch import Tensor

from testbed.data.batch import Batch
from testbed.data.groups import group_average
from testbed.losses.aggregate import spread
from testbed.losses.ratios import log_token
from testbed.objectives import objective


@objective(
    "tba", source="Bartoldson et al. (2025), arXiv:2503.18929; bbartoldson/TBA, src/tba_trainer_gsm8k.py",
    on_policy=None, ratio="sequence", reads=("ref", "reward", "group"), scope="group",
)  # fmt: skip
def tba(logp_BT: Tensor, batch: Batch, *, beta: float = 0.014) -> Tensor:
    """L = (1/T) (sg[log Z] + log W - R / beta)^2, log Z = mean_group (R / beta - log W), W = prod_t pi/ref.

    The samples may come from any policy with full support: mu is not read. The residual is REBEL's with ref
    for mu and 1 / beta for eta. The gradient is REBEL's up to the factor 2G/(G-1) if all sequences of a group
    weigh the same. Spread evenly over the T tokens; aggregate with constant, length 1. beta = 0.014 is the
    code's for GSM8K.
    """
    log_w_B = log_token(logp_BT, batch, base="ref").sum(-1)
    error_B = log_w_B - batch.reward_B.to(log_w_B.dtype) / beta
    log_z_B = -group_average(error_B, batch.group_B).detach()
    return spread((log_z_B + error_B).square().unsqueeze(-1), batch.mask_BT)
