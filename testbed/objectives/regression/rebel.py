"""REBEL: regress differences of log-ratios on differences of rewards; no value function is needed."""

from torch import Tensor

from testbed.data.batch import Batch
from testbed.data.groups import group_average, group_size
from testbed.losses.aggregate import spread
from testbed.losses.ratios import log_token
from testbed.objectives import objective


@objective(
    "rebel", source="Gao et al. (2024), arXiv:2404.16767; ZhaolinGao/REBEL, src/tldr/rebel.py",
    on_policy=None, ratio="sequence", reads=("mu", "reward", "group"), scope="group",
)  # fmt: skip
def rebel(logp_BT: Tensor, batch: Batch, *, eta: float = 1.0) -> Tensor:
    """L = (1/T) 2G/(G-1) (e - mean_group e)^2, e = log W - eta R, W = prod_t pi/mu.

    The paper's pair loss (e - e')^2: the mean over the sequences of a group of G is the mean over its pairs,
    and for G = 2 each of the two sequences carries the paper's loss exactly. For any G its minimizer is mu
    exp(eta R) / Z: the difference cancels Z, so no value is estimated. A group of one has no loss. Spread
    evenly over the T tokens; aggregate with constant, length 1. eta = 1 is the default of the authors'
    script.
    """
    log_w_B = log_token(logp_BT, batch).sum(-1)
    error_B = log_w_B - eta * batch.reward_B.to(log_w_B.dtype)
    size_B = group_size(error_B, batch.group_B)
    centered_B = error_B - group_average(error_B, batch.group_B)
    loss_B = 2 * size_B / (size_B - 1).clamp(min=1) * centered_B.square()
    return spread(loss_B.unsqueeze(-1), batch.mask_BT)
