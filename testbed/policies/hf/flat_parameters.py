"""All weights of a module as one flat tensor, so that a snapshot is a clone and the gradient one vector."""

import math

import torch
from torch import Tensor, nn

from testbed.errors import UserError


class FlatParameters:
    """Names, shapes and order of a module's distinct trainable parameters; a tied weight counts once.

    Raises UserError for weights that are not floating point (quantized models cannot be trained here).
    """

    def __init__(self, module: nn.Module) -> None:
        self.names: list[str] = []
        self.shapes: list[torch.Size] = []
        for name, parameter in module.named_parameters():
            if not parameter.requires_grad:
                continue
            if not parameter.is_floating_point():
                raise UserError(
                    f"Weight '{name}' has dtype {parameter.dtype}; give a model that is not quantized."
                )
            self.names.append(name)
            self.shapes.append(parameter.shape)
        self.sizes = [math.prod(shape) for shape in self.shapes]
        self.total = sum(self.sizes)

    def gather(self, module: nn.Module, dtype: torch.dtype) -> Tensor:
        """Return the module's weights as one vector [P]; weights of that type become views of it."""
        parts = [p for p in module.parameters() if p.requires_grad]
        if not parts:
            return torch.empty(0, dtype=dtype)
        flat_P = torch.empty(self.total, dtype=dtype, device=parts[0].device)
        for parameter, part in zip(parts, flat_P.split(self.sizes), strict=True):
            part.copy_(parameter.detach().reshape(-1))
            if parameter.dtype == dtype:
                parameter.data = part.view(parameter.shape)
        return flat_P

    def views(self, theta_P: Tensor) -> dict[str, Tensor]:
        """Return the named weights as views of theta, [P] or [R, P]; the backward pass concatenates."""
        if theta_P.shape[-1:] != (self.total,):
            raise ValueError(
                f"theta has shape {tuple(theta_P.shape)}, but the model has {self.total} parameters."
            )
        parts, several = torch.split(theta_P, self.sizes, dim=-1), theta_P.shape[:-1]
        return {n: p.reshape(several + s) for n, p, s in zip(self.names, parts, self.shapes, strict=True)}
