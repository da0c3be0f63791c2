"""Hook for objectives with a dual variable: a hyperparameter that training updates between batches."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor


class DualUpdate(NamedTuple):
    """The promise `dual` of an objective: `step` updates its hyperparameter `name`, a dual variable.

    step(value_R, logp_RBT, batch, *, rate, budget) -> the next value_R, from the last pass over a batch. The
    objective takes the hyperparameter as a number or as a tensor [..., 1, 1], one value per replica.
    """

    name: str
    step: Callable[..., Tensor]
