"""Rounding to small number formats in plain torch: bfloat16, e4m3 and int8, without hardware support."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from testbed.errors import UserError


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
