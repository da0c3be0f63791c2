"""Weights of the toy transformer as views of one flat vector per replica, and the layers that use them.

In every matrix [R, D, M] features are rows and tokens are columns: products and the attention loops then read
and write neighboring tokens side by side.

`layers` defines them; compiled passes (`block_kernels`) compute them here, for float32 on the CPU.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from envs.arrays import Floats
from testbed.policies.policy import Rounding
from testbed.policies.toy import compiled
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


EPSILON = 1e-6
"""Keeps the normalization of a zero vector finite."""


def unrounded(x_RDM: Tensor) -> Tensor:
    """Return the inputs themselves."""
    return x_RDM


@dataclass(frozen=True)
class Layer:
    """Weights of one block, each [R, outputs, inputs]; qkv stacks queries, keys and values of all heads.

    rounding: an engine's change of the inputs of these four.
    """

    qkv: Tensor
    out: Tensor
    up: Tensor
    down: Tensor
    rounding: Rounding = unrounded

    def read(self, x_RDM: Tensor, out: Tensor | None = None) -> Tensor:
        """Return stacked queries, keys and values [R, 3 D, M] of features x; written into out if given."""
        if out is None and self.rounding is unrounded and compiled.serves(x_RDM):
            return Read.apply(self.qkv, x_RDM, EPSILON)
        return torch.bmm(self.qkv, self.rounding(normalize(x_RDM)), out=out)


@dataclass(frozen=True)
class Weights:
    """A column of embedding [R, D, V + Q + T - 1] belongs to a token or a position; head is [R, V, D]."""

    embedding: Tensor
    layers: tuple[Layer, ...]
    head: Tensor


@dataclass(frozen=True)
class Shape:
    """Sizes of the model, and the position of each matrix in a row of theta_RP."""

    vocabulary: int
    positions: int
    width: int
    layers: int
    hidden: int

    def matrices(self) -> dict[str, tuple[int, int]]:
        """Return (outputs, inputs) by name, in the order of the flat vector."""
        D, block = self.width, {}
        for i in range(self.layers):
            block[f"layers.{i}.qkv"] = (3 * D, D)
            block[f"layers.{i}.out"] = (D, D)
            block[f"layers.{i}.up"] = (self.hidden, D)
            block[f"layers.{i}.down"] = (D, self.hidden)
        return {"embedding": (D, self.vocabulary + self.positions), **block, "head": (self.vocabulary, D)}

    def named(self, theta_RP: Tensor) -> dict[str, Tensor]:
        """Return views [R, outputs, inputs] of flat weights; their gradient is one concatenation."""
        shapes = self.matrices()
        parts = theta_RP.split([prod(shape) for shape in shapes.values()], 1)
        return {name: p.unflatten(1, shapes[name]) for name, p in zip(shapes, parts, strict=True)}

    def weights(self, theta_RP: Tensor, rounding: Rounding = unrounded) -> Weights:
        """Return the same views, sorted by layer."""
        embedding, *blocks, head = self.named(theta_RP).values()
        matrices = (blocks[i : i + 4] for i in range(0, len(blocks), 4))
        layers = tuple(Layer(qkv, out, up, down, rounding) for qkv, out, up, down in matrices)
        return Weights(embedding, layers, head)

    def initial(self, stream: np.random.Generator) -> Tensor:
        """Return one random row [P] of weights.

        Inputs are normalized, so a deviation of 1 / sqrt(inputs) keeps features of order 1. Contributions to
        the residual stream shrink with depth, and a small head starts close to the uniform distribution.
        """
        parts = []
        for name, (outputs, inputs) in self.matrices().items():
            matrix = stream.standard_normal((outputs, inputs)) * inputs**-0.5
            if name.endswith(("out", "down")):
                matrix *= (2 * self.layers) ** -0.5
            elif name == "head":
                matrix *= 0.1
            elif name == "embedding":
                matrix *= inputs**0.5
                matrix[:, self.vocabulary :] = waves(self.width, self.positions)
            parts.append(torch.from_numpy(matrix.ravel()))
        return torch.cat(parts)


def waves(width: int, positions: int) -> Floats:
    """Sines and cosines [D, positions] in which a shift in time is the same rotation at all times.

    Learned positions start here (Vaswani et al. 2017, section 3.5), so that "the token twelve back" is one
    linear map: from random positions a third of all seeds had not found it after 600 steps. Frequencies fall
    from 1 to 5 / positions, for contexts of about ten to a hundred tokens.
    """
    half = -(-width // 2)
    frequency = np.geomspace(1.0, min(1.0, 5.0 / positions), half)
    angle = frequency[:, None] * np.arange(positions)
    return np.concatenate([np.sin(angle), np.cos(angle)])[:width]


def normalize(x_RDM: Tensor) -> Tensor:
    """x / root mean square of the features: RMSNorm (Zhang & Sennrich 2019) without a gain."""
    return x_RDM * torch.rsqrt(x_RDM.square().mean(1, keepdim=True) + EPSILON)


def embed(embedding_RDE: Tensor, token_RM: Tensor, column_M: Tensor) -> Tensor:
    """The token's column plus the position's column `column_M`, [R, D, M].

    Multiplies by the two-hot matrix of both: the gradient is then a product too. A look-up's gradient is a
    scatter, slow on the CPU and in random order on a GPU.
    """
    R, _, E = embedding_RDE.shape
    index_R2M = torch.stack([token_RM, column_M.expand_as(token_RM)], 1)
    two_hot_REM = embedding_RDE.new_zeros(R, E, token_RM.shape[1]).scatter_(1, index_R2M, 1.0)
    return torch.bmm(embedding_RDE, two_hot_REM)


def finish_block(x_RDM: Tensor, attended_RDM: Tensor, layer: Layer) -> Tensor:
    """y + down relu(up norm(y)) with y = x + out attended."""
    if layer.rounding is unrounded and compiled.serves(x_RDM):
        return FeedForward.apply(x_RDM, attended_RDM, layer.out, layer.up, layer.down, EPSILON)
    y_RDM = torch.baddbmm(x_RDM, layer.out, layer.rounding(attended_RDM))
    hidden_RHM = torch.bmm(layer.up, layer.rounding(normalize(y_RDM))).relu_()
    return torch.baddbmm(y_RDM, layer.down, layer.rounding(hidden_RHM))


def log_distribution(
    weights: Weights, x_RDM: Tensor, temperature: float, change: Callable[[int, Tensor], Tensor] | None = None
) -> Tensor:
    """log softmax of the next token's logits / temperature, [R, V, M]; change(layers, logits) comes first."""
    if compiled.serves(x_RDM):
        logits_RVM = Read.apply(weights.head, x_RDM, EPSILON)
    else:
        logits_RVM = torch.bmm(weights.head, normalize(x_RDM))
    logits_RVM = logits_RVM if change is None else change(len(weights.layers), logits_RVM)
    return torch.log_softmax(logits_RVM / temperature, 1)
