"""Effective weights: the derivative of an objective by each token's log-probability."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.errors import UserError
from testbed.losses.aggregate import token_sum
from testbed.objectives import objective
from testbed.objectives.outside import checked


def effective_weights(
    name_or_function: str | Callable[..., Tensor], logp_BT: Tensor, batch: Batch, **hyper: Any
) -> Tensor:
    """Return w = -d(sum of losses in the mask) / d logp, the coefficient of grad log pi.

    Args:
        name_or_function: a registered objective or any function with an objective's signature.
        logp_BT: log-probabilities [..., B, T] of the target policy.
        batch: the data.
        hyper: hyperparameters of the objective.

    Returns:
        w_BT [..., B, T]; 0 outside the mask.

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
        given = checked(name_or_function, getattr(name_or_function, "__name__", "the objective"))
        function = lambda logp, data: given(logp, data, **hyper)  # noqa: E731
    leaf_BT = logp_BT.detach().requires_grad_()
    with torch.enable_grad():
        total = token_sum(function(leaf_BT, batch), batch.mask_BT).sum()
        (gradient_BT,) = torch.autograd.grad(total, leaf_BT)
    return -gradient_BT


def correction_weights(name: str, batch: Batch, **hyper: Any) -> Tensor:
    """Return an objective's factor on each token before the policy moves; [..., B, T], 0 at padding.

    It is the effective weight over A at pi = anchor, where pi/anchor = 1 and no clip binds, so only the
    correction for anchor/mu remains. For objectives with three policies it is h(d), 0 for dropped tokens:
    stacks call it rollout importance weights, and multiply their loss by it. For objectives without an anchor
    (cispo, topr, …) it is the weight at the trainer's policy.

    Args:
        name: a registered objective, or path/to/file.py:function.
        batch: the data; log-probabilities of the anchor and of mu.
        hyper: hyperparameters of the objective.

    A token without an advantage gets the weight of a positive one. If a mask depends on the sign of A (opsm,
    m2po), so do the weights. Raises UserError for an objective that reads no mu or no advantage, or has a
    weight that is not a multiple of the advantage.

    >>> import torch
    >>> from testbed.data.batch import Batch
    >>> one = torch.ones(1, 2)
    >>> mu, anchor = -one, -one + torch.tensor([[3.0, 0.5]]).log()
    >>> batch = Batch(mu, one, one.bool(), one[:, 0], torch.zeros(1, dtype=torch.int64), anchor)
    >>> correction_weights("tis", batch)
    tensor([[2.0000, 0.5000]])
    """
    promised = objective[name].promises
    reads = promised.get("reads", ("mu", "adv"))
    if "mu" not in reads or "adv" not in reads or promised.get("penalty"):
        raise UserError(
            f"objective '{name}' reads {', '.join(reads) or 'nothing'}"
            f"{' and has a penalty' if promised.get('penalty') else ''}: it has no weight that corrects for "
            "the sampler. Expected one that multiplies the advantage and reads mu, as tis, mis or icepop."
        )
    sign_BT = torch.where(batch.adv_BT < 0, -torch.ones_like(batch.adv_BT), torch.ones_like(batch.adv_BT))
    weight_BT = effective_weights(name, batch.logp_anchor_BT, replace(batch, adv_BT=sign_BT), **hyper)
    return weight_BT * sign_BT + 0.0  # no -0.0
