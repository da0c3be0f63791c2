"""Compiled elementwise passes of the toy transformer's blocks: normalization, its gradient, a cut gradient.

Why by hand: torch takes each of these as five to eight passes over fresh memory, which was a third of a step.
Columns are taken a strip at a time, so that what one loop wrote is still near when the next reads it. A
replica's numbers depend on its own row alone, whatever it is stacked with.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float32]

U = np.uint64
STRIP = U(256)
ZERO, UNIT, NOTHING = U(0), np.float32(1.0), np.float32(0.0)

compiled = njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz", "arcp"}, error_model="numpy")


@compiled
def normalize(x_RDM: Floats, epsilon: np.float32, normed_RDM: Floats, scale_RM: Floats) -> None:
    """normed = x scale with scale = 1 / sqrt(mean over features of x^2 + epsilon)."""
    R, D, M = U(x_RDM.shape[0]), U(x_RDM.shape[1]), U(x_RDM.shape[2])
    per_feature = UNIT / np.float32(D)
    for r in range(R):
        x, normed, scale = x_RDM[r], normed_RDM[r], scale_RM[r]
        for left in range(ZERO, M, STRIP):
            right = min(left + STRIP, M)
            for m in range(left, right):
                scale[m] = NOTHING
            for d in range(D):
                for m in range(left, right):
                    scale[m] += x[d, m] * x[d, m]
            for m in range(left, right):
                scale[m] = UNIT / np.sqrt(scale[m] * per_feature + epsilon)
            for d in range(D):
                for m in range(left, right):
                    normed[d, m] = x[d, m] * scale[m]


@compiled
def add_gradient(grad_RDM: Floats, g_RDM: Floats, normed_RDM: Floats, scale_RM: Floats) -> None:
    """grad += scale (g - normed mean over features of g normed): what x gets of the gradient g of normed."""
    R, D, M = U(g_RDM.shape[0]), U(g_RDM.shape[1]), U(g_RDM.shape[2])
    per_feature, mean = UNIT / np.float32(D), np.empty(STRIP, np.float32)
    for r in range(R):
        grad, g, normed, scale = grad_RDM[r], g_RDM[r], normed_RDM[r], scale_RM[r]
        for left in range(ZERO, M, STRIP):
            width = min(STRIP, M - left)
            for i in range(width):
                mean[i] = NOTHING
            for d in range(D):
                for i in range(width):
                    mean[i] += g[d, left + i] * normed[d, left + i]
            for i in range(width):
                mean[i] *= per_feature
            for d in range(D):
                for i in range(width):
                    m = left + i
                    grad[d, m] += scale[m] * (g[d, m] - normed[d, m] * mean[i])


@compiled
def cut(g_RHM: Floats, hidden_RHM: Floats) -> None:
    """Set g to 0 where the hidden unit is off."""
    g, hidden = g_RHM.reshape(-1), hidden_RHM.reshape(-1)
    for i in range(U(g.size)):
        g[i] = NOTHING if hidden[i] <= NOTHING else g[i]
