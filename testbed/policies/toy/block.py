"""The two halves of a transformer block as one operation each, with explicit gradients.

`layers` defines them; compiled passes (`block_kernels`) compute them here, for float32 on the CPU.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from testbed.policies.toy.compiled import block_loops


class Read(torch.autograd.Function):
    """w norm(x)."""

    @staticmethod
    def forward(ctx: Any, w_RIJ: Tensor, x_RDM: Tensor, epsilon: float) -> Tensor:
        y_RIM = x_RDM.new_empty(*w_RIJ.shape[:2], x_RDM.shape[2])
        block_loops().read(*_arrays(y_RIM, w_RIJ, x_RDM), np.float32(epsilon))
        ctx.save_for_backward(w_RIJ, x_RDM)
        ctx.epsilon = np.float32(epsilon)
        return y_RIM

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_RIM: Tensor) -> tuple[Tensor | None, ...]:
        grads = _like(*ctx.saved_tensors)
        block_loops().read_gradient(*_arrays(*grads, g_RIM, *ctx.saved_tensors), ctx.epsilon)
        return *grads, None


class FeedForward(torch.autograd.Function):
    """y + down relu(up norm(y)) with y = x + out attended."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, attended: Tensor, out: Tensor, up: Tensor, down: Tensor, epsilon: float
    ) -> Tensor:
        z, y = _like(x, x)
        block_loops().feed_forward(*_arrays(z, y, x, attended, out, up, down), np.float32(epsilon))
        ctx.save_for_backward(y, attended, out, up, down)
        ctx.epsilon = np.float32(epsilon)
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        grads = _like(*ctx.saved_tensors)
        arrays = _arrays(g, *ctx.saved_tensors)
        block_loops().feed_forward_gradient(tuple(_arrays(*grads)), *arrays, ctx.epsilon)
        return *grads, None


def _like(*tensors: Tensor) -> list[Tensor]:
    return [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in tensors]


def _arrays(*tensors: Tensor) -> list[NDArray[np.float32]]:
    return [tensor.detach().numpy() for tensor in tensors]
