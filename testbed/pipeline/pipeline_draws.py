"""Random numbers of a simulated pipeline: functions of (key, counter, purpose) alone."""

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from envs.kernels import philox

SAMPLE, GROUP, TOOL = 0, 1, 2
"""Purposes of the counters."""


@njit(forceinline=True)
def uniforms(index: int, purpose: int, key: int) -> tuple[float, float]:
    """Return two doubles in [0, 1) of one counter."""
    w0, w1, w2, w3 = philox(index, index >> 32, 0, purpose, key)
    first = np.float64(((w0 << np.uint64(32)) | w1) >> np.uint64(11)) * 2.0**-53
    second = np.float64(((w2 << np.uint64(32)) | w3) >> np.uint64(11)) * 2.0**-53
    return first, second


@njit(forceinline=True)
def normal(index: int, purpose: int, key: int) -> float:
    """Return a standard normal number of one counter, by Box and Muller."""
    first, second = uniforms(index, purpose, key)
    # The uniform may be 0 but never 1, so the logarithm is finite.
    return math.sqrt(-2.0 * math.log(1.0 - first)) * math.cos(2.0 * math.pi * second)


@njit(forceinline=True)
def length(p: Any, table_K: NDArray[np.int64], shared: float, index: int, key: int) -> int:
    """Return a response's length in tokens: the quantile at a normal score partly shared by its group."""
    score = 0.0
    if p.law != 1:
        score = p.shared * shared + p.own * normal(index, SAMPLE, key)
    if p.law == 2:
        place = int(0.5 * math.erfc(-score / math.sqrt(2.0)) * p.table_size)
        tokens = table_K[p.table_start + min(place, p.table_size - 1)]
    else:
        spread = p.sigma if p.law == 0 else 0.0
        tokens = math.floor(math.exp(min(p.log_mean + spread * score, 40.0)) + 0.5)
    return max(1, min(tokens, p.max_length))


@njit(forceinline=True)
def tool_wait(p: Any, index: int, key: int) -> float:
    """Return the exponential wait of a response for its tool, seconds."""
    return -p.tool_time * math.log(1.0 - uniforms(index, TOOL, key)[0])
