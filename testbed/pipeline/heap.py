"""A binary heap in two arrays: keys (seconds or tokens) and their items; ties by place."""

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(forceinline=True)
def push(key_K: NDArray[np.float64], item_K: NDArray[np.int64], size: int, key: float, item: int) -> None:
    """Put (key, item) into a heap of `size` entries; the caller updates the size."""
    place = size
    while place > 0:
        above = (place - 1) >> 1
        if key_K[above] <= key:
            break
        key_K[place], item_K[place] = key_K[above], item_K[above]
        place = above
    key_K[place], item_K[place] = key, item


@njit(forceinline=True)
def pop(key_K: NDArray[np.float64], item_K: NDArray[np.int64], size: int) -> int:
    """Remove the item of the smallest key from a heap of `size` entries; the caller updates the size."""
    first = item_K[0]
    last = size - 1
    key, item = key_K[last], item_K[last]
    place = 0
    while True:
        below = 2 * place + 1
        if below >= last:
            break
        if below + 1 < last and key_K[below + 1] < key_K[below]:
            below += 1
        if key_K[below] >= key:
            break
        key_K[place], item_K[place] = key_K[below], item_K[below]
        place = below
    key_K[place], item_K[place] = key, item
    return first
