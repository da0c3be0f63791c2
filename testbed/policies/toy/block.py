"""The two halves of a transformer block as one operation each, with their gradients written out.

`layers` says what they compute; here it is done in compiled passes (`block_kernels`), for float32 on the CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from testbed.policies.toy.compiled import block_loops


def normalized(x_RDM: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Return x scale [R, D, M] and the scale [R, M]."""
    R, _, M = x_RDM.shape
    normed_RDM, scale_RM = x_RDM.new_empty(x_RDM.shape), x_RDM.new_empty(R, M)
    block_loops().normalize(*_arrays(x_RDM), np.float32(epsilon), *_arrays(normed_RDM, scale_RM))
    return normed_RDM, scale_RM


class Read(torch.autograd.Function):
    """w norm(x)."""

    @staticmethod
    def forward(ctx: Any, w_RIJ: Tensor, x_RDM: Tensor, epsilon: float) -> Tensor:
        normed, scale = normalized(x_RDM, epsilon)
        ctx.save_for_backward(w_RIJ, normed, scale)
        return torch.bmm(w_RIJ, normed)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_RIM: Tensor) -> tuple[Tensor, Tensor, None]:
        w_RIJ, normed, scale = ctx.saved_tensors
        grad_x = torch.zeros_like(normed)
        block_loops().add_gradient(*_arrays(grad_x, torch.bmm(w_RIJ.mT, g_RIM), normed, scale))
        return torch.bmm(g_RIM, normed.mT), grad_x, None


class FeedForward(torch.autograd.Function):
    """y + down relu(up norm(y)) with y = x + out attended."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, attended: Tensor, out: Tensor, up: Tensor, down: Tensor, epsilon: float
    ) -> Tensor:
        y = torch.baddbmm(x, out, attended)
        normed, scale = normalized(y, epsilon)
        hidden = torch.bmm(up, normed).relu_()
        ctx.save_for_backward(attended, out, up, down, normed, scale, hidden)
        return y.baddbmm_(down, hidden)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        attended, out, up, down, normed, scale, hidden = ctx.saved_tensors
        grad_down, g_hidden = torch.bmm(g, hidden.mT), torch.bmm(down.mT, g)
        block_loops().cut(*_arrays(g_hidden, hidden))
        grad_y = g.clone(memory_format=torch.contiguous_format)
        block_loops().add_gradient(*_arrays(grad_y, torch.bmm(up.mT, g_hidden), normed, scale))
        return (
            grad_y,
            torch.bmm(out.mT, grad_y),
            torch.bmm(grad_y, attended.mT),
            torch.bmm(g_hidden, normed.mT),
            grad_down,
            None,
        )


def _arrays(*tensors: Tensor) -> list[NDArray[np.float32]]:
    return [tensor.detach().numpy() for tensor in tensors]
