"""Compiled loops of root-mean-square normalization, which torch takes as six passes and twelve backward."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float32]

compiled = njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz"}, error_model="numpy")


@compiled
def normalize(x_MH: Floats, weight_H: Floats, epsilon: np.float32, out_MH: Floats, scale_M: Floats) -> None:
    """out = weight x scale with scale = 1 / sqrt(mean of x^2 + epsilon)."""
    width = x_MH.shape[1]
    for m in range(x_MH.shape[0]):
        x, out, total = x_MH[m], out_MH[m], np.float32(0)
        for h in range(width):
            total += x[h] * x[h]
        scale = np.float32(1) / np.sqrt(total / np.float32(width) + epsilon)
        scale_M[m] = scale
        for h in range(width):
            out[h] = weight_H[h] * (x[h] * scale)


@compiled
def gradient(
    grad_MH: Floats, x_MH: Floats, weight_H: Floats, scale_M: Floats, grad_x_MH: Floats, grad_weight_H: Floats
) -> None:
    """grad_x = scale (g - x scale^2 mean(g x)) with g = weight grad; grad_weight += sum of grad x scale."""
    width = x_MH.shape[1]
    for m in range(x_MH.shape[0]):
        grad, x, grad_x, scale, total = grad_MH[m], x_MH[m], grad_x_MH[m], scale_M[m], np.float32(0)
        for h in range(width):
            total += weight_H[h] * grad[h] * x[h]
        share = total * scale * scale / np.float32(width)
        for h in range(width):
            grad_x[h] = scale * (weight_H[h] * grad[h] - x[h] * share)
        for h in range(width):
            grad_weight_H[h] += grad[h] * (x[h] * scale)
