"""OAPL: regress the sequence's log-ratio to the sampler on the advantage over the optimal value."""

from torch import Tensor

from testbed.data.batch import Batch
from testbed.data.groups import group_logmeanexp
from testbed.losses.aggregate import spread
from testbed.losses.ratios import log_token
from testbed.objectives import objective


def _residual_square(log_w_B1: Tensor, batch: Batch, beta1: float, beta2: float) -> Tensor:
    reward_B = batch.reward_B.to(log_w_B1.dtype)
    advantage_B = reward_B - group_logmeanexp(reward_B, batch.group_B, beta1)
    return spread((beta2 * log_w_B1 - advantage_B.unsqueeze(-1)).square(), batch.mask_BT)


@objective(
    "oapl",
    source="Ritter et al. (2026), arXiv:2602.19362; loss as in KARL (2026), arXiv:2603.05218, Eq. 1",
    on_policy=None, ratio="sequence", reads=("mu", "reward", "group"), scope="sequence",
)  # fmt: skip
def oapl(logp_BT: Tensor, batch: Batch, *, beta1: float = 1.0, beta2: float = 1e-3) -> Tensor:
    """L = (1/T) (beta2 log W - (R - V))^2, V = beta1 log mean_group exp(R / beta1), W = prod_t pi/mu.

    The log-mean-exp includes the sequence's reward; beta1 = 0 makes V the group's best reward, infinity its
    mean. Spread evenly over the T tokens of the sequence. No ratio, clip or separate reference: mu is the
    anchor. A group with equal rewards is only pulled back to mu; the paper leaves such prompts out. Aggregate
    with constant, length 1. beta1 = 1, beta2 = 1e-3 are the paper's; it also clips the gradient's norm at
    1e-3, which at pi = mu is 0.5 for REINFORCE's gradient.
    """
    log_w_B1 = log_token(logp_BT, batch).sum(-1, keepdim=True)
    return _residual_square(log_w_B1, batch, beta1, beta2)


@objective.variant(
    "oapl@nemo-rl",
    source="NVIDIA-NeMo/RL 2026-08, the length-normalized option of a pull request that adds OAPL",
    ratio="geometric",
)
def oapl_nemo_rl(logp_BT: Tensor, batch: Batch, *, beta1: float = 1.0, beta2: float = 1e-3) -> Tensor:
    """L = (1/T) (beta2 (1/T) log W - (R - V))^2, V = beta1 log mean_group exp(R / beta1), W = prod_t pi/mu.

    The paper sums the log-ratio over tokens, this takes its mean: the gradient of a long response is T times
    smaller, and its anchor T^2 times weaker. The pull request was read without the
    configuration that says whether the option is on.
    """
    length_B1 = batch.mask_BT.sum(-1, keepdim=True)
    log_s_B1 = log_token(logp_BT, batch).sum(-1, keepdim=True) / length_B1
    return _residual_square(log_s_B1, batch, beta1, beta2)
