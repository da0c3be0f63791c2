"""What an objective does is its derivative: the effective weight, for every objective alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.aggregate import token_sum
from testbed.objectives import objective


def effective_weights(
    name_or_function: str | Callable[..., Tensor], logp_BT: Tensor, batch: Batch, **hyper: Any
) -> Tensor:
    """w_BT = -d(sum of losses under the mask)/d logp_BT, the coefficient of grad log pi; 0 at padding.

    Args:
        name_or_function: a registered objective or any function with an objective's signature.
        logp_BT: log-probabilities [..., B, T] of the target policy.
        batch: the data.
        hyper: hyperparameters of the objective.

    Raises UserError for an unknown objective or hyperparameter.

    Example: for REINFORCE the weight is the advantage.

    >>> import torch
    >>> from testbed.data.batch import Batch
    >>> one = torch.ones(1, 2)
    >>> batch = Batch(-one, 3 * one, one.bool(), one[:, 0], torch.zeros(1, dtype=torch.int64))
    >>> effective_weights("reinforce", -one, batch)
    tensor([[3., 3.]])
    """
    if isinstance(name_or_function, str):
        function = objective[name_or_function].bind(**hyper)
    else:
        function = lambda logp, data: name_or_function(logp, data, **hyper)  # noqa: E731
    leaf_BT = logp_BT.detach().requires_grad_()
    with torch.enable_grad():
        total = token_sum(function(leaf_BT, batch), batch.mask_BT).sum()
        (gradient_BT,) = torch.autograd.grad(total, leaf_BT)
    return -gradient_BT
