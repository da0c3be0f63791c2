"""SGD and Adam on stacked weights with a learning rate per replica, which torch.optim does not offer.

Functional: weights in, weights out, so a snapshot is an assignment. A test compares both with torch.optim.
"""

import inspect
import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from testbed.errors import UserError, unknown
from testbed.policies.toy import compiled


class Optimizer(Protocol):
    """Map theta_RP, the gradient of a loss to minimize and a learning rate per replica to new theta_RP."""

    def step(self, theta_RP: Tensor, grad_RP: Tensor, learning_rate_R: Tensor) -> Tensor: ...


class SGD:
    """theta <- theta - eta g."""

    def __init__(self, theta_RP: Tensor) -> None:
        del theta_RP

    def step(self, theta_RP: Tensor, grad_RP: Tensor, learning_rate_R: Tensor) -> Tensor:
        """Return new weights [R, P]."""
        return theta_RP - learning_rate_R[:, None] * grad_RP


class Adam:
    """Adam (Kingma & Ba 2015, Algorithm 1), by default with beta = (0.9, 0.999), eps = 1e-8.

    Raises UserError for a beta outside [0, 1) and an eps that is not finite and above 0.
    """

    def __init__(self, theta_RP: Tensor, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8) -> None:
        if not (0 <= beta1 < 1 and 0 <= beta2 < 1 and 0 < eps < math.inf):
            raise UserError(
                f"optimizer_args are beta1 {beta1:g}, beta2 {beta2:g} and eps {eps:g}; expected betas from 0 "
                "to below 1 and a finite eps above 0."
            )
        self.beta1, self.beta2, self.eps = beta1, beta2, eps
        self.first_RP = torch.zeros_like(theta_RP)
        self.second_RP = torch.zeros_like(theta_RP)
        self.count = 0

    def step(self, theta_RP: Tensor, grad_RP: Tensor, learning_rate_R: Tensor) -> Tensor:
        """Return new weights [R, P]."""
        self.count += 1
        scale = (1 - self.beta2**self.count) ** 0.5
        rate_R = learning_rate_R / (1 - self.beta1**self.count)
        if compiled.serves(theta_RP):
            from testbed.policies.adam_kernel import adam  # loads the compiler

            new_RP = torch.empty_like(theta_RP, memory_format=torch.contiguous_format)
            rows = (new_RP, theta_RP, grad_RP, self.first_RP, self.second_RP, rate_R.float())
            take = np.float32(1 - self.beta1), np.float32(1 - self.beta2)  # 1 - float32(.999) is 1e-5 off
            adam(*(row.detach().numpy() for row in rows), take, np.float32(scale), np.float32(self.eps))
            return new_RP
        self.first_RP.lerp_(grad_RP, 1 - self.beta1)
        self.second_RP.mul_(self.beta2).addcmul_(grad_RP, grad_RP, value=1 - self.beta2)
        room_RP = self.second_RP.sqrt().div_(scale).add_(self.eps)  # fresh memory is slow at this size
        torch.div(self.first_RP, room_RP, out=room_RP).mul_(rate_R[:, None])
        return torch.sub(theta_RP, room_RP, out=room_RP)


OPTIMIZERS: dict[str, type[SGD] | type[Adam]] = {"sgd": SGD, "adam": Adam}


def build_optimizer(optimizer: str, args: Mapping[str, Any], theta_RP: Tensor) -> Optimizer:
    """Return an optimizer by its name; raise UserError for arguments that it has not."""
    made = OPTIMIZERS[optimizer]
    known = [*inspect.signature(made).parameters][1:]
    for name, value in args.items():
        if not known:
            raise UserError(f"optimizer '{optimizer}' takes no arguments, but optimizer_args has '{name}'.")
        if name not in known:
            raise unknown(f"argument of optimizer '{optimizer}'", name, known)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UserError(f"optimizer_args.{name} is {value!r}, expected a number.")
    return made(theta_RP, **args)
