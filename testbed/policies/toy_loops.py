"""Compiled loops behind the toy transformer's attention; each runs along n neighbors in memory.

Every index is unsigned: a signed one may count from the end of an array, and the test for that keeps the
compiler from using vector instructions. Sums may be reordered and products fused; NaN and infinity keep
their meaning, so a diverged model shows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

Floats = NDArray[np.float32]

U = np.uint64
ZERO, ONE, TWO, THREE, FOUR = U(0), U(1), U(2), U(3), U(4)
NOTHING, UNIT = np.float32(0.0), np.float32(1.0)
HIDDEN = np.float32(-1e30)
"""Score of a key that a query must not see; its probability is exactly 0."""
LOG2_E = 1.0 / math.log(2.0)

RELAXED = {"contract", "reassoc", "nsz", "arcp"}

# 2^t = sum_i c_i t^i on [-1/2, 1/2], relative error 2e-9: least squares on Chebyshev nodes.
_NODES = 0.5 * np.cos(np.pi * (np.arange(512) + 0.5) / 512)
_POWERS = _NODES[:, None] ** np.arange(7) / 2.0 ** _NODES[:, None]
C0, C1, C2, C3, C4, C5, C6 = np.linalg.lstsq(_POWERS, np.ones(512), rcond=None)[0].astype(np.float32)
HALF, LOWEST = np.float32(0.5), np.float32(-126.0)
EXPONENT_BIAS, MANTISSA_BITS = np.int32(127), np.int32(23)


@intrinsic
def _float_from_bits(typing_context: Any, bits: Any) -> Any:
    """The float32 with the bits of an int32."""
    del typing_context, bits

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(signature.return_type))

    return types.float32(types.int32), generate


@njit(cache=True, fastmath=RELAXED)
def exp2(exponent: np.float32) -> np.float32:
    """2^exponent in float32 for exponents up to 0, within 1e-7; exactly 0 below -126; NaN stays NaN.

    The library's exponential takes one number at a time, this one a vector.
    """
    clamped = max(exponent, LOWEST)
    whole = np.floor(clamped + HALF)
    t = clamped - whole
    mantissa = C0 + t * (C1 + t * (C2 + t * (C3 + t * (C4 + t * (C5 + t * C6)))))
    power = mantissa * _float_from_bits((np.int32(whole) + EXPONENT_BIAS) << MANTISSA_BITS)
    # The difference is 0, or NaN when the exponent is.
    return NOTHING if exponent < LOWEST else power + (exponent - clamped)


@njit(cache=True, fastmath=RELAXED)
def product(
    y: Floats, yr: int, yc: int, a: Floats, ar: int, ac: int, x: Floats, xr: int, xc: int, n: int
) -> None:
    """y[yr:yr+4, yc:yc+n] += a[ar:ar+4, ac:ac+4] @ x[xr:xr+4, xc:xc+n]."""
    r1, r2, r3, c1, c2, c3 = ar + ONE, ar + TWO, ar + THREE, ac + ONE, ac + TWO, ac + THREE
    a00, a01, a02, a03 = a[ar, ac], a[ar, c1], a[ar, c2], a[ar, c3]
    a10, a11, a12, a13 = a[r1, ac], a[r1, c1], a[r1, c2], a[r1, c3]
    a20, a21, a22, a23 = a[r2, ac], a[r2, c1], a[r2, c2], a[r2, c3]
    a30, a31, a32, a33 = a[r3, ac], a[r3, c1], a[r3, c2], a[r3, c3]
    for i in range(n):
        x0, x1, x2, x3 = x[xr, xc + i], x[xr + ONE, xc + i], x[xr + TWO, xc + i], x[xr + THREE, xc + i]
        y[yr, yc + i] += a00 * x0 + a01 * x1 + a02 * x2 + a03 * x3
        y[yr + ONE, yc + i] += a10 * x0 + a11 * x1 + a12 * x2 + a13 * x3
        y[yr + TWO, yc + i] += a20 * x0 + a21 * x1 + a22 * x2 + a23 * x3
        y[yr + THREE, yc + i] += a30 * x0 + a31 * x1 + a32 * x2 + a33 * x3


@njit(cache=True, fastmath=RELAXED)
def outer(
    a: Floats, ar: int, ac: int, y: Floats, yr: int, yc: int, x: Floats, xr: int, xc: int, n: int
) -> None:
    """a[ar:ar+4, ac:ac+4] += y[yr:yr+4, yc:yc+n] @ x[xr:xr+4, xc:xc+n].T."""
    for k in range(FOUR):
        s0, s1, s2, s3 = NOTHING, NOTHING, NOTHING, NOTHING
        for i in range(n):
            z = x[xr + k, xc + i]
            s0 += y[yr, yc + i] * z
            s1 += y[yr + ONE, yc + i] * z
            s2 += y[yr + TWO, yc + i] * z
            s3 += y[yr + THREE, yc + i] * z
        a[ar, ac + k] += s0
        a[ar + ONE, ac + k] += s1
        a[ar + TWO, ac + k] += s2
        a[ar + THREE, ac + k] += s3


@njit(cache=True, fastmath=RELAXED)
def dots(
    y: Floats, yr: int, yc: int, a: Floats, ar: int, ac: int, x: Floats, xr: int, xc: int, n: int
) -> None:
    """y[yr, yc:yc+n] += dot products of the columns of a[ar:ar+4, ac:ac+n] and x[xr:xr+4, xc:xc+n]."""
    for i in range(n):
        y[yr, yc + i] += (
            a[ar, ac + i] * x[xr, xc + i]
            + a[ar + ONE, ac + i] * x[xr + ONE, xc + i]
            + a[ar + TWO, ac + i] * x[xr + TWO, xc + i]
            + a[ar + THREE, ac + i] * x[xr + THREE, xc + i]
        )


@njit(cache=True, fastmath=RELAXED)
def scaled(
    y: Floats, yr: int, yc: int, p: Floats, pr: int, pc: int, x: Floats, xr: int, xc: int, n: int
) -> None:
    """y[yr:yr+4, yc:yc+n] += p[pr, pc:pc+n] * x[xr:xr+4, xc:xc+n]."""
    for i in range(n):
        weight = p[pr, pc + i]
        y[yr, yc + i] += weight * x[xr, xc + i]
        y[yr + ONE, yc + i] += weight * x[xr + ONE, xc + i]
        y[yr + TWO, yc + i] += weight * x[xr + TWO, xc + i]
        y[yr + THREE, yc + i] += weight * x[xr + THREE, xc + i]


@njit(cache=True, fastmath=RELAXED)
def softmax(p: Floats, rows: int, n: int, scale: np.float32, high: Floats, total: Floats) -> None:
    """Turn scores p[:rows, :n] into probabilities 2^(scale p) / sum, column by column."""
    for i in range(n):
        high[i] = p[ZERO, i]
        total[i] = NOTHING
    for j in range(ONE, rows):
        for i in range(n):
            high[i] = max(high[i], p[j, i])
    for j in range(rows):
        for i in range(n):
            power = exp2(scale * (p[j, i] - high[i]))
            p[j, i] = power
            total[i] += power
    for i in range(n):
        total[i] = UNIT / total[i]
    for j in range(rows):
        for i in range(n):
            p[j, i] *= total[i]
