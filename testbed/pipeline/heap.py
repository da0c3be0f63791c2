"""A binary heap in two arrays: keys (seconds or tokens) and what they belong to; ties by place."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(forceinline=True)
def push(key_C: NDArray[np.float64], item_C: NDArray[np.int64], size: int, key: float, item: int) -> None:
    """Put (key, item) into a heap of `size` entries; the caller counts."""
    place = size
    while place > 0:
        above = (place - 1) >> 1
        if key_C[above] <= key:
            break
        key_C[place], item_C[place] = key_C[above], item_C[above]
        place = above
    key_C[place], item_C[place] = key, item


@njit(forceinline=True)
def pop(key_C: NDArray[np.float64], item_C: NDArray[np.int64], size: int) -> int:
    """Take the item of the smallest key out of a heap of `size` entries; the caller counts."""
    first = item_C[0]
    last = size - 1
    key, item = key_C[last], item_C[last]
    place = 0
    while True:
        below = 2 * place + 1
        if below >= last:
            break
        if below + 1 < last and key_C[below + 1] < key_C[below]:
            below += 1
        if key_C[below] >= key:
            break
        key_C[place], item_C[place] = key_C[below], item_C[below]
        place = below
    key_C[place], item_C[place] = key, item
    return first
