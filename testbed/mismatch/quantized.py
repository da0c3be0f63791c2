"""Engines of lower precision: weights, or the inputs of linear layers."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from testbed.errors import UserError
from testbed.mismatch import SamplerEngine, by_matrix, mismatch


@dataclass(frozen=True)
class FloatFormat:
    """A binary floating-point format: `mantissa` stored bits, smallest normal exponent, largest value."""

    mantissa: int
    smallest_exponent: int
    largest: float
    saturates: bool


E4M3 = FloatFormat(mantissa=3, smallest_exponent=-6, largest=448.0, saturates=True)
"""OCP FP8 E4M3 (the "fn" kind: no infinities): bias 7, subnormals are multiples of 2^-9 (Micikevicius et al.
2022, arXiv:2209.05433). Casts saturate, as rollout kernels do."""


def e4(mantissa: int) -> FloatFormat:
    """Return e4m3, or a like format with 2, 1 or 0 stored bits; raises UserError for others.

    Exponents are those of e4m3. The largest value is (2 - 2^-m) 2^8, except for e4m3, where that code is NaN.
    """
    if mantissa not in range(E4M3.mantissa + 1):
        raise UserError(f"mantissa is {mantissa}, the stored bits of a number; expected 3 (e4m3), 2, 1 or 0.")
    return replace(E4M3, mantissa=mantissa, largest=min(E4M3.largest, (2 - 2.0**-mantissa) * 2.0**8))


BFLOAT16 = FloatFormat(mantissa=7, smallest_exponent=-126, largest=(2 - 2**-7) * 2.0**127, saturates=False)
"""The upper half of a float32; overflow gives infinity."""

INT8_LARGEST = 127
"""Symmetric: -128 is not used."""


def to_float(x: Tensor, kind: FloatFormat) -> Tensor:
    """Round each number to the nearest in the format, ties to even mantissa, in the type of x; NaN stays NaN.

    It rounds once, also from float64, where torch's cast goes through float32 and may round twice. Valid for
    x of type float32 or float64.
    """
    exponent = torch.frexp(x).exponent - 1  # x = m 2^exponent with 1 <= m < 2
    exponent = exponent.clamp(min=kind.smallest_exponent)
    quantum = torch.ldexp(torch.ones_like(x), exponent - kind.mantissa)
    # Division by a power of two is exact, and torch.round rounds halves to even.
    rounded = torch.where(torch.isfinite(x), torch.round(x / quantum) * quantum, x)
    if kind.saturates:
        return rounded.clamp(-kind.largest, kind.largest)
    return torch.where(rounded.abs() > kind.largest, rounded.sign() * torch.inf, rounded)


def largest_by_block(x_RIJ: Tensor, rows: int, columns: int) -> Tensor:
    """Largest |x| in each element's block of rows x columns, [R, I, J]; edge blocks are smaller."""
    R, I, J = x_RIJ.shape  # noqa: E741
    up, across = -(-I // rows), -(-J // columns)
    padded = x_RIJ.new_zeros(R, up * rows, across * columns)
    padded[:, :I, :J] = x_RIJ.abs()
    largest = padded.view(R, up, rows, across, columns).amax((2, 4))
    return largest.repeat_interleave(rows, 1).repeat_interleave(columns, 2)[:, :I, :J]


def scale_of(largest: Tensor, reach: float, power_of_two: bool = False) -> Tensor:
    """Return largest / reach, or the next power of two above it; 1 for zeros."""
    scale = largest / reach
    if power_of_two:
        mantissa, exponent = torch.frexp(scale)
        # 2^n itself has mantissa 1/2 and exponent n + 1.
        scale = torch.ldexp(torch.ones_like(scale), exponent - (mantissa == 0.5).to(exponent.dtype))
    return torch.where(largest == 0, torch.ones_like(scale), scale)


def to_int8(x: Tensor, scale: Tensor) -> Tensor:
    """Return scale * round(x / scale), integers up to 127; |error| <= scale / 2 if |x| <= 127 scale."""
    return torch.round(x / scale).clamp(-INT8_LARGEST, INT8_LARGEST) * scale


class StraightThrough(torch.autograd.Function):
    """Forward the rounded weights, bit for bit; pass gradients unchanged."""

    @staticmethod
    def forward(_ctx: Any, _x: Tensor, rounded: Tensor) -> Tensor:
        return rounded

    @staticmethod
    def backward(_ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


def straight_through(x: Tensor, rounded: Tensor) -> Tensor:
    """Return `rounded` with the gradient of x, as training through a quantized forward pass does."""
    value: Tensor = StraightThrough.apply(x, rounded)  # type: ignore[no-untyped-call]
    return value


@mismatch("bf16", source="bfloat16 rollouts of float32 weights; verl docs, rollout precision")
def bf16() -> SamplerEngine:
    """W_mu = round(W) to bfloat16: 8 significant bits, ties to even; vectors too."""
    rounded = lambda theta_RP, *_: straight_through(theta_RP, to_float(theta_RP, BFLOAT16))  # noqa: E731
    return SamplerEngine("bf16", rounded)


@mismatch("fp8-tensor", source="e4m3: Micikevicius et al. (2022), arXiv:2209.05433; per-tensor scales")
def fp8_tensor(
    *, matrices: str = "linear", power_of_two: bool = False, mantissa: int = E4M3.mantissa
) -> SamplerEngine:
    """W_mu = s e4m3(W / s), s = max|W| / 448 of the whole matrix.

    power_of_two rounds s up to a power of two (UE8M0 scales). mantissa: stored bits; with fewer than e4m3's 3
    the format is coarser than FP8.
    """
    return _fp8("fp8-tensor", None, matrices, power_of_two, e4(mantissa))


@mismatch(
    "fp8-block",
    source="e4m3 with a scale per 128 x 128 block: DeepSeek-V3 (2024), arXiv:2412.19437, section 3.3",
)
def fp8_block(*, block: int = 128, matrices: str = "linear", power_of_two: bool = False) -> SamplerEngine:
    """W_mu = s e4m3(W / s), s = max|W| / 448 of each block x block square.

    A matrix smaller than the block has one scale. With power_of_two no element's error exceeds that with one
    scale per tensor; with s = max|W| / 448 only the error bound, max|W| / 28, does not.
    """
    if block < 1:
        raise UserError(f"block is {block}, expected at least 1; 128 is what rollout engines use.")
    return _fp8("fp8-block", block, matrices, power_of_two)


def _fp8(
    name: str, block: int | None, matrices: str, power_of_two: bool, kind: FloatFormat = E4M3
) -> SamplerEngine:
    def change(_name: str, w_RIJ: Tensor) -> Tensor:
        rows, columns = (block, block) if block else (w_RIJ.shape[-2], w_RIJ.shape[-1])
        scale = scale_of(largest_by_block(w_RIJ.detach(), rows, columns), kind.largest, power_of_two)
        return straight_through(w_RIJ, to_float(w_RIJ / scale, kind) * scale)

    return _by_matrix(name, matrices, change)


def _by_matrix(name: str, matrices: str, change: Callable[[str, Tensor], Tensor]) -> SamplerEngine:
    return SamplerEngine(name, lambda theta_RP, layout, _draw: by_matrix(theta_RP, layout, matrices, change))


@mismatch(
    "int8", source="symmetric absmax int8: Dettmers et al. (2022), arXiv:2208.07339, section 2; weights only"
)
def int8(*, per_channel: bool = True, matrices: str = "linear") -> SamplerEngine:
    """W_mu = s round(W / s), |integer| <= 127, s = max|row| / 127; one s per matrix if not per_channel."""

    def change(_name: str, w_RIJ: Tensor) -> Tensor:
        rows = 1 if per_channel else w_RIJ.shape[-2]
        scale = scale_of(largest_by_block(w_RIJ.detach(), rows, w_RIJ.shape[-1]), INT8_LARGEST)
        return straight_through(w_RIJ, to_int8(w_RIJ, scale))

    return _by_matrix("int8", matrices, change)


@mismatch(
    "fp8-activations",
    source="e4m3 inputs of linear layers, a scale per token; vLLM's dynamic FP8 with fp8-tensor beside it",
    level="forward",
    needs=("layers",),
)
def fp8_activations(*, power_of_two: bool = False, mantissa: int = E4M3.mantissa) -> SamplerEngine:
    """x_mu = s e4m3(x / s), s = max|x| / 448 of each token, for every input x of a block's linear layer.

    Weights, attention, embeddings and head keep their precision; compose it with fp8-block to round weights
    too. Gradients pass unchanged. mantissa: as in fp8-tensor.
    """
    kind = e4(mantissa)

    def rounding(x_RDM: Tensor) -> Tensor:
        largest_R1M = x_RDM.detach().abs().amax(1, keepdim=True)
        scale_R1M = scale_of(largest_R1M, kind.largest, power_of_two)
        return straight_through(x_RDM, to_float(x_RDM.detach() / scale_R1M, kind) * scale_R1M)

    return SamplerEngine("fp8-activations", forward=lambda policy, _draw: policy.with_rounding(rounding))


BLOCK = 32
"""Weights of a row that share a scale in llama.cpp's formats."""


@mismatch(
    "q8-0", source="llama.cpp's format Q8_0 (ggml-quants.c): 8 bits and a scale per 32 weights of a row"
)
def q8_0(*, matrices: str = "linear") -> SamplerEngine:
    """W_mu = s round(W / d), d = max|W| / 127 of each 32 weights of a row, s = d in float16."""

    def to_integers(scaled_RIKB: Tensor) -> Tensor:
        # Halves away from 0, as in C; torch.round takes them to even, and floor(x + .5) rounds .49999997 up.
        whole = scaled_RIKB.abs().floor()
        return scaled_RIKB.sign() * (whole + (2 * (scaled_RIKB.abs() - whole)).floor())

    return _in_blocks("q8-0", matrices, lambda x_RIKB: x_RIKB.abs().amax(-1, keepdim=True) / 127, to_integers)


@mismatch(
    "q4-0", source="llama.cpp's format Q4_0 (ggml-quants.c): 4 bits and a scale per 32 weights of a row"
)
def q4_0(*, matrices: str = "linear") -> SamplerEngine:
    """W_mu = s q, q = floor(W / d + 1/2) in -8 .. 7, s = d in float16, per 32 weights of a row.

    d = -m / 8, m the weight of the largest |W|: m itself is kept, its opposite becomes 7/8 of that.
    """

    def step(x_RIKB: Tensor) -> Tensor:
        return x_RIKB.gather(-1, x_RIKB.abs().argmax(-1, keepdim=True)) / -8

    def to_integers(scaled_RIKB: Tensor) -> Tensor:
        # As in ggml; W / d is at least -8 up to rounding, so the sum is positive and trunc is floor.
        return torch.trunc(scaled_RIKB + 8.5).clamp(0, 15) - 8

    return _in_blocks("q4-0", matrices, step, to_integers)


def _in_blocks(
    name: str, matrices: str, step: Callable[[Tensor], Tensor], to_integers: Callable[[Tensor], Tensor]
) -> SamplerEngine:
    """Return an engine of integers times a float16 scale; a row's last block may be shorter.

    step: blocks [R, rows, blocks, 32] -> the step d of each, with a last axis of 1. to_integers: W / d -> q.
    """

    def change(_name: str, w_RIJ: Tensor) -> Tensor:
        columns = w_RIJ.shape[-1]
        padded = functional.pad(w_RIJ.detach(), (0, -columns % BLOCK))
        w_RIKB = padded.unflatten(-1, (-1, BLOCK))
        step_RIK1 = step(w_RIKB)
        # A block of zeros has step 0, and 0 times its inverse would be NaN.
        inverse_RIK1 = torch.where(step_RIK1 == 0, 0.0, 1.0 / step_RIK1)
        rounded = to_integers(w_RIKB * inverse_RIK1) * step_RIK1.half().to(w_RIJ)
        return straight_through(w_RIJ, rounded.flatten(-2)[..., :columns])

    return _by_matrix(name, matrices, change)
