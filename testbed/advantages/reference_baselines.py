"""Baselines from responses that are not trained on: the greedy one, or samples of the reference policy."""

import math

from torch import Tensor

from testbed.advantages import advantage
from testbed.data.signals import Signals


@advantage(
    "remax", source="Li et al. (2024), ReMax, arXiv:2310.10505", needs=("greedy_reward_B",), scope="sequence"
)
def remax(signals: Signals) -> Tensor:
    """A = R - R of the greedy response to the same prompt.

    Unbiased, because the greedy response does not depend on the sampled one. Both must come from the same
    weights.
    """
    return signals.reward_B - signals.require("greedy_reward_B", "remax")


@advantage(
    "optimal_value", source="A*-PO (2025), arXiv:2505.20686", needs=("reference_reward_BN",), scope="sequence"
)
def optimal_value(signals: Signals, *, beta1: float = 0.5) -> Tensor:
    """A = R - V*, V* = beta1 log of the mean of exp(R' / beta1) over N reference responses.

    The value of the best policy within KL temperature beta1 of the reference policy, estimated once.
    beta1 = 0 gives its limit, the largest reward; infinity the mean. Never overflows.
    """
    return _above_value(signals, beta1, "optimal_value")


def _above_value(signals: Signals, beta1: float, method: str) -> Tensor:
    reward_BN = signals.require("reference_reward_BN", method)
    if beta1 == math.inf:
        return signals.reward_B - reward_BN.mean(-1)
    top_B = reward_BN.max(-1).values
    if beta1 == 0:
        return signals.reward_B - top_B
    return signals.reward_B - top_B - beta1 * ((reward_BN - top_B[..., None]) / beta1).exp().mean(-1).log()


@advantage.variant(
    "optimal_value@author", source="ZhaolinGao/A-PO, verl/trainer/apo/core_algos.py; read 2026"
)
def optimal_value_author(signals: Signals, *, beta1: float = 0.0) -> Tensor:
    """A = R - V*, V* = beta1 log of the mean of exp(R' / beta1); the plain mean of R' for beta1 = 0.

    Unlike the formula's limit, beta1 = 0 means the plain mean, a lower baseline. Otherwise equal, except that
    the authors' code overflows for small beta1, which is not reproduced.
    """
    return _above_value(signals, beta1 or math.inf, "optimal_value@author")
