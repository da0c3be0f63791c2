"""The hook of an objective with a dual variable: a hyperparameter that training moves between batches."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor


class DualUpdate(NamedTuple):
    """The promise `dual` of an objective: its hyperparameter `name` is a dual variable, moved by `step`.

    step(value_R, logp_RBT, batch, *, rate, budget) -> the next value_R, from the last pass over a batch. The
    objective takes the hyperparameter as a number or as a tensor [..., 1, 1], one value per replica.
    """

    name: str
    step: Callable[..., Tensor]
